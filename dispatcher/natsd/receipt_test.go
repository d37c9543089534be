package natsd_test

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/receipt"
)

// A credential with which jobs may be run has a key of receipts, which its holder finds in the
// file and the pool in what it keeps. It is not the key that signs what a broker asks for.
func TestReceiptKeys(t *testing.T) {
	t.Parallel()
	dir, seen := t.TempDir(), map[string]jobs.Role{}
	for _, role := range append(jobs.Roles, jobs.RoleWorker) {
		held, secret, err := natsd.NewCredential(role, "")
		if err != nil {
			t.Fatal(err)
		}
		if may := role == jobs.RoleWorker || role == jobs.RoleOperator; may != (held.Receipts != "") {
			t.Errorf("%s has the key %q", role, held.Receipts)
		}
		file := filepath.Join(dir, held.Name)
		if err := os.WriteFile(file, secret, 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := natsd.ReceiptKey(file)
		if err != nil {
			t.Fatal(err)
		}
		id := receipt.KeyID(key.Public().(ed25519.PublicKey))
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s have the same key", role, other)
		}
		seen[id] = role
		if held.Receipts != "" && held.Receipts != id {
			t.Errorf("%s: the pool keeps %s, and the holder has %s", role, held.Receipts, id)
		}
		raw, err := nkeys.Decode(nkeys.PrefixByteUser, []byte(held.Key))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(raw, key.Public().(ed25519.PublicKey)) {
			t.Errorf("%s: the key of receipts is that of the credential", role)
		}
	}
	for name, text := range map[string]string{"empty": "", "no key": "-----BEGIN PENSTOCK ROLE-----\nworker\n------END PENSTOCK ROLE------\n"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := natsd.ReceiptKey(file); err == nil {
			t.Errorf("%s: there is a key", name)
		}
	}
	if _, err := natsd.ReceiptKey(filepath.Join(dir, "missing")); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}
