package capsule

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// Settle waits until the files of a conversation have not changed for a while. Agents write them
// after they have said that a turn is over, and do not say when that is done. An agent may write
// on, so Settle returns after the limit at the latest, and when the agent does not rest any more.
func (c Conversation) Settle(ctx context.Context, quiet, limit time.Duration, rests func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	look := time.NewTicker(quiet / 8)
	defer look.Stop()
	last, since := "", time.Now()
	for {
		now, err := c.identity()
		if err != nil {
			return err
		}
		if now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) >= quiet || !rests() {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

// identity is the same as long as no file of the conversation changes.
func (c Conversation) identity() (string, error) {
	if err := checkID(c.ID); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(c.Home)
	if err != nil {
		return "", err
	}
	defer root.Close()
	names, err := c.find(root)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, name := range names {
		if info, err := root.Lstat(name); err == nil { // else it was removed meanwhile
			fmt.Fprintf(&b, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String(), nil
}
