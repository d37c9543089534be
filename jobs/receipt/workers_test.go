package receipt_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/receipt"
)

// newKey is a key of its own for each seed.
func newKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// An envelope is one that a forger takes apart.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     []byte      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   []byte `json:"sig"`
}

func parse(t *testing.T, data []byte) (e envelope) {
	t.Helper()
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e envelope) text(t *testing.T) []byte {
	t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return append(data, '\n')
}

// sign signs an envelope as DSSE wants it, with any key.
func (e envelope) sign(key ed25519.PrivateKey) envelope {
	e.Signatures = []signature{{receipt.KeyID(public(key)), ed25519.Sign(key, fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload))}}
	return e
}

// What a receipt says can be signed by the worker that is named only: not by an agent, not by
// another worker, and not by whoever carries it.
func TestForgeries(t *testing.T) {
	t.Parallel()
	another, agent := newKey(8), newKey(9)
	pool := receipt.Workers{{Name: "build-3", Key: public(key)}, {Name: "build-4", Key: public(another)}}
	genuine := func(worker string) envelope {
		return parse(t, signed(t, func(a *receipt.Attempt) { a.Worker = worker }))
	}
	for _, c := range []struct {
		name  string
		forge func() envelope
		wrong string // the part; empty: it is genuine
		by    string
	}{
		{"a worker's own", func() envelope { return genuine("build-3") }, "", "build-3"},
		{"of a worker whose name is no credential's", func() envelope { return genuine("host-17") }, "", "build-3"},
		{"an agent signs with a key of its own", func() envelope { return genuine("build-3").sign(agent) }, "key", ""},
		{"an agent names a worker's key", func() envelope {
			e := genuine("build-3").sign(agent)
			e.Signatures[0].KeyID = receipt.KeyID(public(key))
			return e
		}, "signature", ""},
		{"another worker signs in the name of one", func() envelope { return genuine("build-3").sign(another) }, "worker", ""},
		{"a signature of another statement", func() envelope {
			e := genuine("build-3")
			e.Payload = bytes.Replace(e.Payload, []byte(commit), []byte(strings.Repeat("0", 40)), 1)
			return e
		}, "signature", ""},
		{"a signature of the statement alone, as a broker can have it made", func() envelope {
			e := genuine("build-3")
			e.Signatures[0].Sig = ed25519.Sign(key, e.Payload)
			return e
		}, "signature", ""},
		{"a statement of another type", func() envelope {
			e := genuine("build-3")
			e.PayloadType = "application/json"
			return e.sign(key)
		}, "payload type", ""},
		{"two signatures", func() envelope {
			e := genuine("build-3")
			e.Signatures = append(e.Signatures, e.sign(agent).Signatures...)
			return e
		}, "envelope", ""},
		{"no signature", func() envelope { e := genuine("build-3"); e.Signatures = nil; return e }, "envelope", ""},
		{"a key that is none", func() envelope {
			e := genuine("build-3")
			e.Signatures[0].KeyID = "ed25519:" + base64.StdEncoding.EncodeToString([]byte("short"))
			return e
		}, "key", ""},
	} {
		r, err := receipt.Open(c.forge().text(t))
		var by receipt.Worker
		if err == nil {
			by, err = pool.Signer(r)
		}
		switch {
		case c.wrong != "":
			wrong(t, c.name, err, c.wrong)
		case err != nil || by.Name != c.by:
			t.Errorf("%s: signed by %q, %v; want %s", c.name, by.Name, err, c.by)
		}
	}
}

// A byte that is changed in one part of a receipt is found in that part, or in the signature of it.
func TestAChangedByteIsNamed(t *testing.T) {
	t.Parallel()
	pool := receipt.Workers{{Name: "build-3", Key: public(key)}}
	good := signed(t, func(a *receipt.Attempt) {
		a.Result.Roots, a.Mounts = []string{"sha256:" + strings.Repeat("cd", 32)}, []string{"/opt/go"}
	})
	text := string(parse(t, good).Payload)
	inPayload := func(part string) int {
		at := strings.Index(text, part)
		if at < 0 {
			t.Fatalf("%s is not in %s", part, text)
		}
		return at
	}
	for part, at := range map[string]int{
		"base commit": inPayload(commit), "job": inPayload(`"sha256":"`) + 10, "policy": inPayload(`"policy":"`) + 10, "root": inPayload(strings.Repeat("cd", 32)),
		"mount": inPayload("/opt/go"), "agent": inPayload("claude"), "usage": inPayload(`"usage"`) + 10, "check": inPayload("make test"),
		"events": inPayload(`"events"`), "patch": inPayload("edb1a6"), "ref": inPayload("refs/heads/"), "artifact": inPayload("report.xml"), "worker": inPayload(`"worker":"w"`) + 10,
	} {
		e := parse(t, good)
		e.Payload[at] ^= 1
		wrong(t, part, second(receipt.Open(e.text(t))), "signature")
	}
	for part, change := range map[string]func(*envelope){
		"payload type": func(e *envelope) { e.PayloadType = "b" + e.PayloadType[1:] },
		"signature":    func(e *envelope) { e.Signatures[0].Sig[7] ^= 1 },
		"key":          func(e *envelope) { e.Signatures[0].KeyID = "fd25519:" + e.Signatures[0].KeyID[8:] },
	} {
		e := parse(t, good)
		change(&e)
		wrong(t, part, second(receipt.Open(e.text(t))), part)
	}
	for at := range good {
		bad := slices.Clone(good)
		bad[at] ^= 1
		r, err := receipt.Open(bad)
		if err == nil {
			_, err = pool.Signer(r)
		}
		wrong(t, fmt.Sprintf("byte %d", at), err, "")
	}
}

func TestParseWorkers(t *testing.T) {
	t.Parallel()
	one, two := receipt.KeyID(public(newKey(1))), receipt.KeyID(public(newKey(2)))
	for text, want := range map[string]int{
		"": 0, "# none\n\n": 0, "a " + one: 1, " a\t" + one + " \r\nb " + two + "\n": 2, "a " + one + "\na " + two: 2, "a " + one + "\na " + one: 2,
		"a": -1, "a " + one + " b": -1, "a " + one[:len(one)-1]: -1, one + " a": -1, "a " + one + "\nb " + one: -1, "a " + strings.Repeat("x", 1<<17): -1,
	} {
		all, err := receipt.ParseWorkers(strings.NewReader(text))
		if err != nil && want >= 0 || err == nil && len(all) != want {
			t.Errorf("%.60q: %d workers, %v; want %d", text, len(all), err, want)
		}
	}
}

// The receipt says what the programs of the jails came from: of a container the image that ran,
// by its id, and not the name that the job gave it alone.
func TestRoots(t *testing.T) {
	t.Parallel()
	roots := []string{"sha256:" + strings.Repeat("ab", 32), "sha256:" + strings.Repeat("cd", 32)}
	for isolation, want := range map[jobs.Isolation]string{jobs.IsolationContainer: receipt.ImageName, jobs.IsolationWorktree: receipt.HostName} {
		r, err := receipt.Open(signed(t, func(a *receipt.Attempt) {
			a.Job.Isolation, a.Job.Image, a.Result.Roots, a.Mounts = isolation, "acme/agent:7", roots, []string{"/opt/go"}
		}))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, from := range r.Statement.Predicate.BuildDefinition.ResolvedDependencies {
			if from.Name == want {
				got = append(got, "sha256:"+from.Digest["sha256"])
			}
			if image := from.Annotations["image"]; (image == "acme/agent:7") != (from.Name == receipt.ImageName) {
				t.Errorf("%s names the image %v", from.Name, image)
			}
		}
		if !slices.Equal(got, roots) {
			t.Errorf("%s: got %v of %s, want %v", isolation, got, want, roots)
		}
		if mounts := r.Statement.Predicate.BuildDefinition.InternalParameters.Mounts; (len(mounts) == 1) != (want == receipt.HostName) {
			t.Errorf("%s: got the mounts %v", isolation, mounts)
		}
	}
}
