// Package httpdoor is what penstock serve leaves in its data directory for the commands of
// the directory's owner: the token of its HTTP interface, and the address that accepts it.
//
// A command sends the token to that address and nowhere else by itself: on a host with
// several users, another program may listen where serve did.
package httpdoor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/penstock-run/penstock/dispatcher/httpapi"
)

// addressFile is the name of the file with the address.
const addressFile = "http-address"

// ErrClosed says that a data directory has a token, and that nothing serves HTTP there.
var ErrClosed = errors.New("no penstock serve answers HTTP")

// Announce writes the address of a server, which has the token of the data directory. The
// function that it returns takes the address away again.
func Announce(dir, address string) (withdraw func() error, err error) {
	file := filepath.Join(dir, addressFile)
	if err := os.WriteFile(file, []byte(address+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("address of HTTP: %w", err)
	}
	return func() error { return os.Remove(file) }, nil
}

// Address returns the address of the server of a data directory.
func Address(dir string) (string, error) {
	announced, err := os.ReadFile(filepath.Join(dir, addressFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w on %s", ErrClosed, dir)
	}
	return strings.TrimSpace(string(announced)), err
}

// Host is a name of this host that only holders of the token of a data directory know. A
// browser sends a cookie to every port of the name that the cookie came from: to what an
// agent serves on localhost or 127.0.0.1 it sends none of this name. Browsers take each
// name under localhost for this host.
func Host(token string) string {
	sum := sha256.Sum256([]byte("penstock dashboard " + token))
	return "penstock-" + hex.EncodeToString(sum[:8]) + ".localhost"
}

// Token returns the token for a server if the server of the data directory is the one that
// is meant, else "". A server that was there and has ended is [ErrClosed].
func Token(dir, server string) (string, error) {
	named := strings.Replace(strings.TrimSuffix(server, "/"), "//localhost:", "//127.0.0.1:", 1)
	if _, err := os.Stat(filepath.Join(dir, httpapi.TokenFile)); err != nil {
		return "", nil // another user's, or none
	}
	announced, err := os.ReadFile(filepath.Join(dir, addressFile))
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(named, "http://"):
		return "", fmt.Errorf("%w on %s", ErrClosed, dir)
	case err != nil || strings.TrimSpace(string(announced)) != named:
		return "", nil
	}
	return httpapi.OpenToken(dir)
}
