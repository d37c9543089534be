// Package seal signs jobs and verifies their signatures.
//
// A signature covers every field of a job and the id under which it is stored:
// a copy under another id is an unsigned job. It does not cover what happens to
// the job afterwards, which its record says.
package seal

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
)

// An UnsignedError says why a job has no valid signature of a trusted key.
type UnsignedError struct{ Why string }

func (e *UnsignedError) Error() string { return "the job " + e.Why }

// Sign returns the job with a signature, as the job with that id. Sign what has
// its defaults.
func Sign(j jobs.Job, id string, key ed25519.PrivateKey) (jobs.Job, error) {
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return j, errors.New("not an ed25519 key")
	}
	data, err := canonical(j, id)
	if err != nil {
		return j, err
	}
	j.Signature = &jobs.Signature{ID: id, Key: public, Value: ed25519.Sign(key, data)}
	return j, nil
}

// Verify reports whether one of the trusted keys has signed exactly this job,
// under the id of the record; the record must be of that job, too. Else it
// returns an [UnsignedError].
func Verify(j jobs.Job, rec jobs.Record, trusted []ed25519.PublicKey) error {
	s := j.Signature
	if s == nil {
		return &UnsignedError{"is not signed"}
	}
	known := false
	for _, key := range trusted {
		known = known || bytes.Equal(key, s.Key)
	}
	if !known || len(s.Key) != ed25519.PublicKeySize {
		return &UnsignedError{"is signed with a key that is not trusted here"}
	}
	if s.ID != rec.ID {
		return &UnsignedError{fmt.Sprintf("was signed as %s and is used as %s", s.ID, rec.ID)}
	}
	data, err := canonical(j, rec.ID)
	if err != nil {
		return err
	}
	if !ed25519.Verify(s.Key, data, s.Value) {
		return &UnsignedError{"was altered after it was signed"}
	}
	made := jobs.NewRecord(rec.ID, rec.Tenant, j, rec.Submitted)
	if made.Session != rec.Session || made.Class != rec.Class || made.Key != rec.Key || made.Batch != rec.Batch {
		return &UnsignedError{"is kept with another session, queue, key or batch than was signed"}
	}
	return nil
}

// canonical returns the signed bytes: the id, and the job as it is stored but for the
// signature. They are derived from the values and not from the submitter's bytes,
// so the worker acts on exactly what it verified.
func canonical(j jobs.Job, id string) ([]byte, error) {
	j.Signature = nil
	stored, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	var same jobs.Job // an empty list and none are the same when they are stored
	if err := json.Unmarshal(stored, &same); err != nil {
		return nil, err
	}
	if stored, err = json.Marshal(same); err != nil {
		return nil, err
	}
	return append([]byte("penstock job v1\n"+id+"\n"), stored...), nil
}
