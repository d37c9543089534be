package receipt_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/receipt"
)

const (
	patch  = "diff --git a/f b/f\n+new\n"
	commit = "3d4dca384ea9d235340549d22752952bb8e58abd"
)

var key = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

// events are those of a session; the attempt has written the second to the last but one.
func events() (all []jobs.Event, chain receipt.Chain) {
	for seq := uint64(1); seq <= 6; seq++ {
		e := jobs.Event{Seq: seq, Time: time.Unix(int64(seq), 0).UTC(), Job: "j", Session: "j", Attempt: 1, Kind: jobs.Notice, Data: json.RawMessage(`{"text":"<&>"}`)}
		all = append(all, e)
		if seq > 1 && seq < 6 {
			text, _ := json.Marshal(e)
			chain.Add(seq, text)
		}
	}
	return all, chain
}

func seq(all []jobs.Event) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func signed(t *testing.T, change func(*receipt.Attempt)) []byte {
	t.Helper()
	_, chain := events()
	claimed := time.Unix(100, 0)
	a := receipt.Attempt{
		Job:    jobs.Job{Prompt: "do it", Repo: jobs.Repo{URL: "https://example.org/r"}, Agent: jobs.Agent{Name: "claude"}, Isolation: jobs.IsolationWorktree},
		Record: jobs.Record{ID: "j", Session: "j", Class: "default", Attempt: 1, Claimed: &claimed},
		Epoch:  3, Worker: "w", Release: "v1", Policy: map[string]any{}, Events: chain, Finished: time.Unix(200, 0),
		Result: jobs.Result{
			Outcome: jobs.Success, BaseCommit: commit, PatchSHA256: "edb1a6ffd4ef1f5d6a1c4b5cce2d0a4a3bb0f3d3f2c25d15a9cd0fc52e7e1c77", Branch: "penstock/j",
			Roots:  []string{"sha256:" + strings.Repeat("cd", 32)},
			Checks: []jobs.Check{{Command: "make test"}}, LastAttempt: jobs.Spent{Usage: jobs.Usage{Input: 7}, CostUSD: 0.25},
			Artifacts: []jobs.Artifact{{Name: "report.xml", SHA256: strings.Repeat("ab", 32)}},
		},
		Commit: commit,
	}
	if change != nil {
		change(&a)
	}
	data, err := receipt.Sign(key, a)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func wrong(t *testing.T, what string, err error, part string) {
	t.Helper()
	if invalid, ok := errors.AsType[*receipt.InvalidError](err); !ok || part != "" && invalid.Part != part {
		t.Errorf("%s: got %v, want that the %s is wrong", what, err, part)
	}
}

// One byte of a receipt that is changed, left out or added, wherever it is, is found.
func TestEachByteCounts(t *testing.T) {
	t.Parallel()
	good := signed(t, nil)
	if _, err := receipt.Open(good); err != nil {
		t.Fatal(err)
	}
	for at := range good {
		for _, flip := range []byte{1, 0x20, 0x80} {
			bad := bytes.Clone(good)
			bad[at] ^= flip
			if _, err := receipt.Open(bad); err == nil {
				t.Fatalf("byte %d flipped by %x is not found: %q", at, flip, bad)
			}
		}
		for _, bad := range [][]byte{append(bytes.Clone(good[:at]), good[at+1:]...), append(append(bytes.Clone(good[:at]), ' '), good[at:]...)} {
			if _, err := receipt.Open(bad); err == nil {
				t.Fatalf("a byte less or more at %d is not found: %q", at, bad)
			}
		}
	}
	wrong(t, "nothing", second(receipt.Open(nil)), "envelope")
	wrong(t, "more behind it", second(receipt.Open(append(bytes.Clone(good), good...))), "envelope")
}

func sum(text string) string {
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:])
}

func second(_ *receipt.Receipt, err error) error { return err }

// What a receipt is about is compared.
func TestCompared(t *testing.T) {
	t.Parallel()
	data := signed(t, func(a *receipt.Attempt) { a.Result.PatchSHA256 = sum(patch) })
	r, err := receipt.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	if !key.Public().(ed25519.PublicKey).Equal(r.Key) {
		t.Error("the key is another one")
	}
	if err := errors.Join(r.Patch(strings.NewReader(patch)), r.Commit(commit)); err != nil {
		t.Error(err)
	}
	for at := range patch {
		bad := []byte(patch)
		bad[at] ^= 1
		wrong(t, "another patch", r.Patch(bytes.NewReader(bad)), "patch")
	}
	wrong(t, "another commit", r.Commit(strings.Repeat("0", 40)), "commit")

	all, _ := events()
	if err := r.Events(seq(all)); err != nil {
		t.Error(err)
	}
	changed := append([]jobs.Event(nil), all...)
	changed[2].Data = json.RawMessage(`{"text":"no"}`)
	for name, list := range map[string][]jobs.Event{
		"none": nil, "the last one is missing": all[:4], "one is missing": append(append([]jobs.Event(nil), all[:2]...), all[3:]...),
		"one is twice": append(append([]jobs.Event(nil), all[:3]...), all[2:]...), "one is changed": changed, "the first one is missing": all[2:],
	} {
		wrong(t, name, r.Events(seq(list)), "events")
	}
	none, err := receipt.Open(signed(t, func(a *receipt.Attempt) { a.Commit, a.Events, a.Result.PatchSHA256 = "", receipt.Chain{}, "" }))
	if err != nil {
		t.Fatal(err)
	}
	wrong(t, "no commit", none.Commit(commit), "commit")
	wrong(t, "no events", none.Events(seq(all)), "events")
	if err := none.Patch(strings.NewReader("")); err != nil {
		t.Errorf("an attempt without changes has an empty patch: %v", err)
	}
}

// The prompt is in the digest only: a receipt goes to more people than a job.
func TestAReceiptDoesNotTellThePrompt(t *testing.T) {
	t.Parallel()
	data := signed(t, func(a *receipt.Attempt) { a.Job.Prompt = "secret plan" })
	var e struct{ Payload []byte }
	if err := json.Unmarshal(data, &e); err != nil || bytes.Contains(e.Payload, []byte("secret plan")) {
		t.Errorf("%v %s", err, e.Payload)
	}
	if bytes.Equal(data, signed(t, func(a *receipt.Attempt) { a.Job.Prompt = "secret plot" })) {
		t.Error("another prompt makes the same receipt")
	}
}

// others checks the signature of the key for the library.
type others struct{}

func (others) Public() crypto.PublicKey { return key.Public() }
func (others) KeyID() (string, error)   { return receipt.KeyID(key.Public().(ed25519.PublicKey)), nil }
func (others) Verify(_ context.Context, data, sig []byte) error {
	if !ed25519.Verify(key.Public().(ed25519.PublicKey), data, sig) {
		return errors.New("not signed")
	}
	return nil
}

// Other programs read it: DSSE's own library takes the signature, and in-toto's types the
// statement and its predicate.
func TestOthersReadIt(t *testing.T) {
	t.Parallel()
	var e dsse.Envelope
	if err := json.Unmarshal(signed(t, nil), &e); err != nil {
		t.Fatal(err)
	}
	v, err := dsse.NewEnvelopeVerifier(others{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), &e); err != nil {
		t.Errorf("the signature: %v", err)
	}
	e.Payload = base64.StdEncoding.EncodeToString([]byte("{}"))
	if _, err := v.Verify(t.Context(), &e); err == nil {
		t.Error("another payload is taken")
	}
	if err := json.Unmarshal(signed(t, nil), &e); err != nil {
		t.Fatal(err)
	}
	payload, err := e.DecodeB64Payload()
	if err != nil {
		t.Fatal(err)
	}
	var s intoto.Statement
	if err := protojson.Unmarshal(payload, &s); err != nil {
		t.Fatalf("the statement: %v", err)
	}
	if err := s.Validate(); err != nil {
		t.Errorf("the statement: %v", err)
	}
	predicate, err := protojson.Marshal(s.GetPredicate())
	if err != nil {
		t.Fatal(err)
	}
	var p provenance.Provenance
	if err := protojson.Unmarshal(predicate, &p); err != nil {
		t.Fatalf("the predicate: %v", err)
	}
	if err := p.Validate(); err != nil {
		t.Errorf("the predicate: %v", err)
	}
}
