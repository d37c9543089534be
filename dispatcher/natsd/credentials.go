package natsd

import (
	"cmp"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/access"
	"github.com/penstock-run/penstock/jobs/receipt"
)

// A Credential is what a server keeps of one: the public half. There is a file
// for each, named by the key, so that making and revoking one never meets
// another process that does the same.
type Credential struct {
	Name    string    `json:"name"`
	Role    jobs.Role `json:"role"`
	Key     string    `json:"key"`
	Created time.Time `json:"created"`
	// Receipts is the public key of the receipts that a worker with this credential signs, as
	// package receipt names it; empty: of a role that runs no jobs, or made by a release that
	// kept none.
	Receipts string `json:"receipts,omitempty"`
}

// A Secret is a credentials file: a client needs it, and no one else may see it.
type Secret []byte

var (
	credentialName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`) })
	roleBlock      = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`-----BEGIN PENSTOCK ROLE-----\r?\n(\S+)\r?\n------END PENSTOCK ROLE------`)
	})
)

// NewCredential makes a credential that no server knows yet. An empty name
// stands for one that is made up.
func NewCredential(role jobs.Role, name string) (Credential, Secret, error) {
	if name == "" {
		name = string(role) + "-" + string([]byte(jobs.HashKey("", rand.Text()))[:6])
	}
	if !credentialName().MatchString(name) {
		return Credential{}, nil, fmt.Errorf("%q is not a credential's name: use up to 63 of a-z, 0-9, '.', '_' and '-'", name)
	}
	pair, err := nkeys.CreateUser()
	if err != nil {
		return Credential{}, nil, err
	}
	defer pair.Wipe()
	key, err := pair.PublicKey()
	if err != nil {
		return Credential{}, nil, err
	}
	seed, err := pair.Seed()
	if err != nil {
		return Credential{}, nil, err
	}
	held := Credential{Name: name, Role: role, Key: key, Created: time.Now().UTC()}
	if role == jobs.RoleWorker || role.All() {
		signs, err := receiptKey(seed)
		if err != nil {
			return Credential{}, nil, err
		}
		held.Receipts = receipt.KeyID(signs.Public().(ed25519.PublicKey)) // which the public half of one always is
	}
	secret := fmt.Appendf(nil, "-----BEGIN PENSTOCK ROLE-----\n%s\n------END PENSTOCK ROLE------\n\n-----BEGIN USER NKEY SEED-----\n%s\n------END USER NKEY SEED------\n", role, seed)
	return held, secret, nil
}

// receiptContext tells the keys of receipts from others that may be derived of a credential.
const receiptContext = "penstock receipts v1"

// receiptKey derives the key of receipts of a credential's seed. So who has made the credential
// knows which receipts are its holder's, and no one else can sign one. It is not the credential's
// key itself, with which its holder signs whatever a broker sends it.
func receiptKey(seed []byte) (ed25519.PrivateKey, error) {
	_, secret, err := nkeys.DecodeSeed(seed)
	if err != nil {
		return nil, err
	}
	derived, err := hkdf.Key(sha256.New, secret, nil, receiptContext, ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(derived), nil
}

// ReceiptKey is the key with which the holder of a credentials file signs receipts.
func ReceiptKey(file string) (ed25519.PrivateKey, error) {
	data, err := readSmall(file)
	if err != nil {
		return nil, err
	}
	pair, err := nkeys.ParseDecoratedUserNKey(data)
	if err != nil {
		return nil, fmt.Errorf("credentials %s: %w", file, err)
	}
	defer pair.Wipe()
	seed, err := pair.Seed()
	if err != nil {
		return nil, fmt.Errorf("credentials %s: %w", file, err)
	}
	return receiptKey(seed)
}

// Admit makes the server of a directory accept a credential, whether it runs
// or not.
func Admit(dir string, c Credential) error {
	all, err := Credentials(dir)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(other Credential) bool { return other.Name == c.Name }) {
		return fmt.Errorf("there is a credential named %s already: revoke it, or choose another name", c.Name)
	}
	data, err := json.MarshalIndent(c, "", "\t")
	if err == nil {
		err = os.MkdirAll(credentialsDir(dir), 0o700)
	}
	if err == nil {
		err = writeFile(credentialFile(dir, c.Key), data)
	}
	if err != nil {
		return fmt.Errorf("keep credential %s: %w", c.Name, err)
	}
	return nil
}

// Revoke makes the server of a directory refuse a credential, and end the
// connections that use it.
func Revoke(dir, name string) (Credential, error) {
	all, err := Credentials(dir)
	if err != nil {
		return Credential{}, err
	}
	for _, c := range all {
		if c.Name == name {
			if err := os.Remove(credentialFile(dir, c.Key)); err != nil {
				return c, fmt.Errorf("revoke credential %s: %w", name, err)
			}
			return c, nil
		}
	}
	return Credential{}, fmt.Errorf("credential %s: %w", name, jobs.ErrNotFound)
}

// Credentials returns those that the server of a directory accepts, by name.
func Credentials(dir string) ([]Credential, error) {
	files, err := os.ReadDir(credentialsDir(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list credentials: %w", err)
	}
	list := []Credential{}
	for _, f := range files {
		key, ok := cutSuffix(f.Name())
		if !ok {
			continue
		}
		c, err := credential(dir, key)
		if errors.Is(err, fs.ErrNotExist) {
			continue // revoked just now
		}
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Credential) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// credential reads one by its key.
func credential(dir, key string) (Credential, error) {
	// A name that is not a key could be a path.
	if !nkeys.IsValidPublicUserKey(key) {
		return Credential{}, fmt.Errorf("%q is not a public user key", key)
	}
	data, err := os.ReadFile(credentialFile(dir, key))
	if err != nil {
		return Credential{}, err
	}
	var c Credential
	if err := json.Unmarshal(data, &c); err != nil {
		return Credential{}, fmt.Errorf("credential %s: %w", key, err)
	}
	if _, err := jobs.ParseRole(string(c.Role)); err != nil || c.Key != key {
		return Credential{}, fmt.Errorf("credential %s is damaged", key)
	}
	return c, nil
}

func credentialsDir(dir string) string { return filepath.Join(dir, "credentials") }

func credentialFile(dir, key string) string { return filepath.Join(credentialsDir(dir), key+".json") }

func cutSuffix(file string) (key string, ok bool) {
	key, ok = file[:max(0, len(file)-len(".json"))], filepath.Ext(file) == ".json"
	return key, ok && nkeys.IsValidPublicUserKey(key)
}

// maxCredentials bounds what is read of a file that a user names.
const maxCredentials = 64 << 10

func readSmall(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCredentials+1))
	if err == nil && len(data) > maxCredentials {
		err = fmt.Errorf("%s is larger than %d bytes, and at most that is read", file, maxCredentials)
	}
	return data, err
}

// Present returns the options of a connection with a credentials file, and the
// role that it says it has. A file in the format of NATS, with a token that
// names the user, says none.
func Present(file string) (jobs.Role, []nats.Option, error) {
	data, err := readSmall(file)
	if err != nil {
		return "", nil, fmt.Errorf("credentials: %w", err)
	}
	found := roleBlock().FindSubmatch(data)
	if found == nil {
		return "", []nats.Option{nats.UserCredentials(file)}, nil
	}
	role, err := jobs.ParseRole(string(found[1]))
	if err != nil {
		return "", nil, fmt.Errorf("credentials %s: %w", file, err)
	}
	pair, err := nkeys.ParseDecoratedUserNKey(data)
	if err != nil {
		return "", nil, fmt.Errorf("credentials %s: %w", file, err)
	}
	key, err := pair.PublicKey()
	if err != nil {
		return "", nil, fmt.Errorf("credentials %s: %w", file, err)
	}
	return role, []nats.Option{nats.Nkey(key, pair.Sign), nats.CustomInboxPrefix(access.Inbox(key))}, nil
}
