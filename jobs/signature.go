package jobs

import (
	"crypto/ed25519"
	"fmt"

	"github.com/google/uuid"
)

// A Signature says who wrote a job, so that its worker need not trust the
// processes that carried it.
type Signature struct {
	ID    string `json:"id"`    // of the job, chosen by the signer
	Key   []byte `json:"key"`   // the public half, ed25519
	Value []byte `json:"value"` // over the job without this, and the id
}

func (j Job) validateSignature(found *InvalidError) {
	s := j.Signature
	if s == nil {
		return
	}
	if id, err := uuid.Parse(s.ID); err != nil || id.String() != s.ID {
		found.add("signature.id", fmt.Errorf("%q is not a job's id (a UUID)", s.ID))
	}
	if len(s.Key) != ed25519.PublicKeySize {
		found.add("signature.key", fmt.Errorf("has %d bytes; an ed25519 key has %d", len(s.Key), ed25519.PublicKeySize))
	}
	if len(s.Value) != ed25519.SignatureSize {
		found.add("signature.value", fmt.Errorf("has %d bytes; an ed25519 signature has %d", len(s.Value), ed25519.SignatureSize))
	}
}
