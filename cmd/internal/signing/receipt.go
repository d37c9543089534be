package signing

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/dispatcher/natsd"
)

// None is the setting of a worker that signs no receipts.
const None = "none"

// ReceiptKey is the key with which this worker signs receipts; nil: it signs none. Without one
// in the settings it is that of the worker's credential. Without a credential it is the data
// directory's own, which is made at its first use.
func ReceiptKey(settings *cli.Config) (ed25519.PrivateKey, error) {
	file := settings.Worker.ReceiptKey
	switch {
	case file == None:
		return nil, nil
	case file == "" && settings.Creds != "":
		return natsd.ReceiptKey(settings.Creds)
	case file == "":
		file = OwnReceiptKey(settings)
		if err := makeKey(file); err != nil {
			return nil, fmt.Errorf("make the key of receipts: %w", err)
		}
	}
	keys, err := pemKeys(file, "PRIVATE KEY", private)
	if err != nil {
		return nil, cli.Usage("openssl genpkey -algorithm ed25519 -out FILE makes one; worker.receipt_key: none does without", "the key of receipts: %w", err)
	}
	return keys[0], nil
}

// OwnReceiptKey is where a data directory has its key.
func OwnReceiptKey(settings *cli.Config) string { return filepath.Join(settings.Data, "receipt.key") }

// makeKey makes a key, unless there is one. Of two processes that make it at the same
// time both use the one that was there first.
func makeKey(file string) error {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".receipt-*") // which only its owner reads
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = pem.Encode(f, &pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), file); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// PublicPEM is a public key as a file has it.
func PublicPEM(key ed25519.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}
