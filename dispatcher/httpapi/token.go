package httpapi

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// TokenFile is the name of the file in a data directory that has its token.
const TokenFile = "http-token"

// tokenBytes is how much of a token is random.
const tokenBytes = 32

// OpenToken returns the token of a data directory, and makes it if there is none yet.
// It is for programs of the directory's owner: other users cannot read the file, and one
// that they can read is refused.
func OpenToken(dir string) (string, error) { return OpenTokenFile(filepath.Join(dir, TokenFile)) }

// OpenTokenFile is [OpenToken] for a token in a file of another name.
func OpenTokenFile(file string) (string, error) {
	token, err := readToken(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	random := make([]byte, tokenBytes)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	dir, name := filepath.Split(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// A file of its own first: a reader, or a crash, must not see a half. Linking it
	// fails where another process was faster.
	whole, err := os.CreateTemp(dir, name+"-*") // mode 0600
	if err != nil {
		return "", err
	}
	defer os.Remove(whole.Name())
	_, err = whole.WriteString(base64.RawURLEncoding.EncodeToString(random) + "\n")
	if err = errors.Join(err, whole.Sync(), whole.Close()); err != nil {
		return "", err
	}
	if err := os.Link(whole.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return readToken(file)
}

func readToken(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("token %s can be read by other users: remove it, so that the next start makes another one", file)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(content))
	if random, err := base64.RawURLEncoding.DecodeString(token); err != nil || len(random) < tokenBytes {
		return "", fmt.Errorf("token %s is damaged: remove it, so that the next start makes another one", file)
	}
	return token, nil
}

// Bearer returns a function for [Config] that gives an identity to requests with a token,
// and none to all others.
func Bearer(token string, who Identity) func(*http.Request) (Identity, error) {
	wanted := sha256.Sum256([]byte(token))
	return func(r *http.Request) (Identity, error) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(given)) // as long, whatever was sent
		if token == "" || !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], wanted[:]) != 1 {
			return Identity{}, ErrUnauthenticated
		}
		return who, nil
	}
}

// Owner is the identity of the token of a data directory.
var Owner = Identity{Name: "http", Role: jobs.RoleOperator}
