package jobs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
)

// NewID returns a new identifier for a job, a session or a batch: a UUIDv7,
// so that identifiers sort by the time they were made.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// IsID reports whether s is an identifier as [NewID] makes them.
func IsID(s string) bool {
	id, err := uuid.Parse(s)
	return err == nil && id.Version() == 7 && id.String() == s
}

var token = pattern(`^[a-z0-9][a-z0-9-]{0,62}$`)

// CheckToken reports whether s may stand in a subject, a key or a path.
// A broker stores a literal "*" in a subject, and a later purge of that
// subject would hit every other one, so nothing else may pass.
func CheckToken(field, s string) error {
	if token().MatchString(s) {
		return nil
	}
	return &FieldError{Field: field, Reason: fmt.Sprintf("%q is not a name: use 1 to 63 of a-z, 0-9 and '-', not beginning with '-'", s)}
}

// HashKey turns a submitter's free-form key into a token.
func HashKey(tenant, key string) string {
	sum := sha256.Sum256([]byte(tenant + "\x00" + key))
	return hex.EncodeToString(sum[:16])
}
