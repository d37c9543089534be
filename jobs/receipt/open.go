package receipt

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"

	"github.com/penstock-run/penstock/jobs"
)

// MaxBytes bounds what is read as a receipt.
const MaxBytes = 4 << 20

// An InvalidError says what of a receipt is wrong, or is not what it is about.
type InvalidError struct {
	Part string // envelope, payload type, key, worker, signature, statement, patch, commit, events
	Why  string
}

func (e *InvalidError) Error() string { return e.Part + ": " + e.Why }

// A Receipt is one whose signature is that of its key. Whether the key is a worker's, a list
// of workers says; see [Workers].
type Receipt struct {
	Statement Statement
	Key       ed25519.PublicKey
}

// Open checks a receipt by itself. Its error is an [InvalidError].
func Open(data []byte) (*Receipt, error) {
	payload, key, err := unseal(data)
	if err != nil {
		return nil, err
	}
	r := &Receipt{Key: key}
	if err := json.Unmarshal(payload, &r.Statement); err != nil {
		return nil, &InvalidError{"statement", err.Error()}
	}
	s := &r.Statement
	for _, is := range []struct{ what, got, want string }{
		{"type", s.Type, StatementType}, {"predicate type", s.PredicateType, PredicateType}, {"build type", s.Predicate.BuildDefinition.BuildType, BuildType},
	} {
		if is.got != is.want {
			return nil, &InvalidError{"statement", fmt.Sprintf("its %s is %q, not %s", is.what, is.got, is.want)}
		}
	}
	return r, nil
}

// Patch checks that a patch is the one of the receipt.
func (r *Receipt) Patch(patch io.Reader) error {
	sum := sha256.New()
	if _, err := io.Copy(sum, patch); err != nil {
		return err
	}
	return r.subject("patch", "sha256", hex.EncodeToString(sum.Sum(nil)))
}

// Commit checks that a commit, by its whole id, is the one that the job's branch has got.
func (r *Receipt) Commit(id string) error { return r.subject("commit", "gitCommit", id) }

func (r *Receipt) subject(part, kind, got string) error {
	for _, s := range r.Statement.Subject {
		want, ok := s.Digest[kind]
		switch {
		case ok && want == got:
			return nil
		case ok:
			return &InvalidError{part, fmt.Sprintf("it is %s, and the receipt is about %s", got, want)}
		}
	}
	return &InvalidError{part, "the receipt is about none"}
}

// Events checks that the events of a session are those of the receipt. Events before and
// behind are passed over.
func (r *Receipt) Events(events iter.Seq2[jobs.Event, error]) error {
	first, last, want, err := r.chain()
	if err != nil {
		return err
	}
	var chain Chain
	for e, err := range events {
		if err != nil {
			return err
		}
		if err := chain.follow(e, first, last); err != nil {
			return &InvalidError{"events", err.Error()}
		}
	}
	if chain.Last != last {
		return &InvalidError{"events", fmt.Sprintf("they end before event %d, the last one of the receipt", last)}
	}
	if got := chain.Sum(); got != want {
		return &InvalidError{"events", fmt.Sprintf("those from %d to %d are %s, and the receipt is about %s", first, last, got, want)}
	}
	return nil
}

// chain finds what a receipt says of events.
func (r *Receipt) chain() (first, last uint64, sum string, err error) {
	for _, b := range r.Statement.Predicate.RunDetails.Byproducts {
		first, ok := b.Annotations["first"].(float64)
		last, too := b.Annotations["last"].(float64)
		if b.Name == "events" && ok && too && first >= 1 && last >= first {
			return uint64(first), uint64(last), b.Digest["sha256"], nil
		}
	}
	return 0, 0, "", &InvalidError{"events", "the receipt is about none"}
}
