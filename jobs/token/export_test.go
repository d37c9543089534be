package token

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// Fill keeps so many tokens, t0 and on.
func Fill(ctx context.Context, t *testing.T, s *Store, n int) {
	for i := range n {
		rec := record{Name: fmt.Sprintf("t%d", i), Role: jobs.RoleViewer, Hash: New().Hash(), Created: time.Now()}
		data, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.conn.Put(ctx, wire.Write{Stream: bucket, Subject: subject.Token(rec.Name), Data: data}); err != nil {
			t.Fatal(err)
		}
	}
}

// KnowingNothing returns a verifier of a store without tokens.
func KnowingNothing() *Verifier {
	v := NewVerifier(nil, VerifierConfig{})
	v.known.Store(&map[string]record{})
	v.cfg.Now = func() time.Time { return time.Unix(0, 0) }
	v.fresh.Store(new(time.Unix(0, 0)))
	return v
}
