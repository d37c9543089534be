// Package signing reads the keys of the settings that sign jobs and receipts, and that
// verify signatures.
package signing

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
)

// Key reads the key of --sign-key; nil without one.
func Key(settings *cli.Config) (ed25519.PrivateKey, error) {
	if settings.SignKey == "" {
		return nil, nil
	}
	keys, err := pemKeys(settings.SignKey, "PRIVATE KEY", private)
	if err != nil {
		return nil, cli.Usage("openssl genpkey -algorithm ed25519 -out FILE makes one", "--sign-key: %w", err)
	}
	return keys[0], nil
}

func private(der []byte) (ed25519.PrivateKey, error) {
	return ofType[ed25519.PrivateKey](x509.ParsePKCS8PrivateKey(der))
}

func public(der []byte) (ed25519.PublicKey, error) {
	return ofType[ed25519.PublicKey](x509.ParsePKIXPublicKey(der))
}

// ofType refuses a key of another kind.
func ofType[K any](key any, err error) (K, error) {
	right, ok := key.(K)
	if err == nil && !ok {
		err = fmt.Errorf("is a %T", key)
	}
	return right, err
}

// Public reads the public keys of a file.
func Public(file string) ([]ed25519.PublicKey, error) { return pemKeys(file, "PUBLIC KEY", public) }

// Trusted reads the keys of --require-signature.
func Trusted(settings *cli.Config) ([]ed25519.PublicKey, error) {
	var all []ed25519.PublicKey
	for _, file := range settings.Worker.RequireSignature {
		keys, err := Public(file)
		if err != nil {
			return nil, cli.Usage("openssl pkey -in KEY -pubout writes the public half of a key", "--require-signature: %w", err)
		}
		all = append(all, keys...)
	}
	return all, nil
}

// pemKeys reads all ed25519 keys of a file, and wants at least one.
func pemKeys[K any](file, kind string, parse func([]byte) (K, error)) ([]K, error) {
	data, err := input.ReadFile(file, input.MaxFile)
	if err != nil {
		return nil, err
	}
	var keys []K
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != kind {
			return nil, fmt.Errorf("%s: has a %s, not an ed25519 %s", file, block.Type, kind)
		}
		key, err := parse(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: not an ed25519 key: %w", file, err)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errors.New(file + " has no key in PEM")
	}
	return keys, nil
}
