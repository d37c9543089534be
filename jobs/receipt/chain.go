package receipt

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
)

// A Chain is over the events of a session, one after the other without a gap: the value
// after an event is the SHA-256 of the value before it and the event's text, and before
// the first one it is 32 zero bytes. The zero Chain has no events.
type Chain struct {
	First, Last uint64 // sequences of the session

	value [sha256.Size]byte
}

// Add appends an event as it is stored.
func (c *Chain) Add(seq uint64, text []byte) {
	if c.First == 0 {
		c.First = seq
	}
	c.Last = seq
	c.value = sha256.Sum256(append(c.value[:], text...))
}

// Sum is the value of the chain in hexadecimal.
func (c *Chain) Sum() string { return hex.EncodeToString(c.value[:]) }

// follow adds an event of a session that lies between first and last, and no other. Each must be
// the next one.
func (c *Chain) follow(e jobs.Event, first, last uint64) error {
	if e.Seq < first || e.Seq > last {
		return nil
	}
	if want := max(first, c.Last+1); e.Seq != want {
		return fmt.Errorf("event %d follows where event %d is due", e.Seq, want)
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	c.Add(e.Seq, text)
	return nil
}
