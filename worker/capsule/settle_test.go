package capsule_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-run/penstock/worker/capsule"
)

// What an agent writes soon after it has said that its turn is over is waited for, however often it
// writes. One that never stops is waited for no longer than the limit.
func TestSettle(t *testing.T) {
	t.Parallel()
	const quiet, limit = 300 * time.Millisecond, 3 * time.Second
	for name, tt := range map[string]struct {
		every time.Duration // it writes a line
		lines int
		rests time.Duration // before its next turn
		want  time.Duration // after which it has settled, at the latest a step later
	}{
		"writes no more":      {0, 0, limit, quiet},
		"writes later":        {250 * time.Millisecond, 4, limit, 4*250*time.Millisecond + quiet},
		"never stops":         {250 * time.Millisecond, 1000, 2 * limit, limit},
		"is slower than that": {400 * time.Millisecond, 4, limit, quiet},
		"begins a turn":       {250 * time.Millisecond, 1000, 700 * time.Millisecond, 700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			chat := filepath.Join(home, "one.jsonl")
			if err := os.WriteFile(chat, []byte("{}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan struct{})
				written := make(chan error, 1)
				go func() {
					written <- func() error {
						f, err := os.OpenFile(chat, os.O_APPEND|os.O_WRONLY, 0)
						if err != nil {
							return err
						}
						defer f.Close()
						for range tt.lines {
							select {
							case <-ended:
								return nil
							case <-time.After(tt.every):
							}
							if _, err := f.WriteString("{}\n"); err != nil {
								return err
							}
						}
						return nil
					}()
				}()
				began := time.Now()
				err := capsule.Conversation{Home: home, Files: capsule.Files{Paths: []capsule.Pattern{"{id}.jsonl"}}, ID: "one"}.Settle(t.Context(), quiet, limit, func() bool { return time.Since(began) < tt.rests })
				took := time.Since(began)
				close(ended)
				if broken := <-written; err != nil || broken != nil {
					t.Fatal(err, broken)
				}
				if took < tt.want || took > tt.want+quiet/4 {
					t.Errorf("it has settled after %v, want %v", took, tt.want)
				}
			})
		})
	}
}
