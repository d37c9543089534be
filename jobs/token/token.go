// Package token makes the tokens by which clients of HTTP prove who they are, keeps
// what the pool knows of them, and verifies those that are presented.
//
//	New ─▶ text, for its holder alone
//	         └─hash─▶ Store.Add ═══ bucket ═══▶ Verifier.Run ─▶ Verify(text) ─▶ name and role
//
// The text of a token leaves the process that made it only by its holder's hand: the
// bus, the store, logs and backups have its SHA-256. A slow hash would add nothing,
// since the 256 random bits of a token cannot be guessed, however fast a guess is
// tried; a slow hash is for what people choose.
//
// The package promises:
//
//   - A token that was removed or has expired is refused within a second by each
//     process that the broker reaches, and by any other after a minute at most: one that
//     cannot read the bucket for so long accepts no token, and says that it cannot tell.
//   - Verify asks no other process and waits for none.
//   - An error of Verify does not tell unknown, expired and removed tokens apart. The
//     hook that is for the log does.
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"strings"
)

// Prefix begins every token, so that people and scanners of secrets recognize one.
const Prefix = "pst_"

const (
	randomBytes = 32
	// textLength is that of a token: the prefix, and 36 bytes in base32.
	textLength = len(Prefix) + 58
)

// encoding has letters and digits of one case only: a double click selects all of it,
// and no character of it needs quotes in a shell, a URL or a header.
var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// A Secret is the text of a token. It prints as its prefix alone.
type Secret struct{ text string }

// New makes a token of 256 random bits.
func New() Secret {
	var b [randomBytes]byte
	_, _ = rand.Read(b[:]) // it never fails: the program ends instead
	return Secret{Prefix + encoding.EncodeToString(binary.BigEndian.AppendUint32(b[:], crc32.ChecksumIEEE(b[:])))}
}

// Errors of Parse.
var (
	errForm     = errors.New("not a token: a token is " + Prefix + " and 58 of a-z and 2-7")
	errChecksum = errors.New("not a token: its checksum is wrong, so some character of it is, too")
)

// Parse reads the text of a token. Of one that was mistyped or cut off it says so.
func Parse(text string) (Secret, error) {
	body, ok := strings.CutPrefix(text, Prefix)
	if !ok || len(text) != textLength {
		return Secret{}, errForm
	}
	b, err := encoding.DecodeString(body)
	// The last character has bits to spare, which must be zero: a token has one text.
	if err != nil || encoding.EncodeToString(b) != body {
		return Secret{}, errForm
	}
	if binary.BigEndian.Uint32(b[randomBytes:]) != crc32.ChecksumIEEE(b[:randomBytes]) {
		return Secret{}, errChecksum
	}
	return Secret{text}, nil
}

// Reveal returns the text.
func (s Secret) Reveal() string { return s.text }

// Hash returns what the pool knows the token by: the SHA-256 of its text, in hexadecimal
// digits.
func (s Secret) Hash() string {
	sum := sha256.Sum256([]byte(s.text))
	return hex.EncodeToString(sum[:])
}

// String keeps the text out of logs.
func (s Secret) String() string { return Prefix + "…" }

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// fingerprint is the beginning of a hash, which tells tokens apart for people.
func fingerprint(hash string) string { return hash[:min(len(hash), 12)] }
