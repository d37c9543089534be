package operation

import (
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// Operations on tokens. They are for operators alone: whoever makes a token chooses
// its role.
var (
	TokenAdd = define[TokenRequest, Token](Row{
		Name: "token-add", Changes: true, what: "token", Sentence: "Accept a token whose hash the request has; one of that name is an error.",
	})
	TokenList = define[PageRequest, TokenPage](Row{
		Name: "token-list", Sentence: "List the tokens by name, and when each was last used.",
	})
	TokenRemove = define[Named, Named](Row{
		Name: "token-remove", Changes: true, Sentence: "Accept a token no more.",
	})
)

// A TokenRequest asks for a token to be accepted. It has the hash of the token and not
// the token, which its maker alone has.
type TokenRequest struct {
	Name     string        `json:"name" jsonschema:"A name for the token, which tells who or what uses it."`
	Role     jobs.Role     `json:"role" jsonschema:"What its holder may do: autoscale, viewer, submitter or operator."`
	Hash     string        `json:"hash" jsonschema:"The SHA-256 of the token's whole text, in 64 hexadecimal digits."`
	Lifetime jobs.Duration `json:"lifetime,omitempty" jsonschema:"How long the token is accepted; without it, until it is removed."`
}

func (r TokenRequest) check() error {
	if err := jobs.CheckToken("name", r.Name); err != nil {
		return err
	}
	hash, err := hex.DecodeString(r.Hash)
	switch {
	case !slices.Contains(jobs.TokenRoles, r.Role):
		return invalid("role", `is not the role of a token: use autoscale, viewer, submitter or operator`)
	case err != nil || len(hash) != 32 || strings.ToLower(r.Hash) != r.Hash:
		return invalid("hash", "is not a SHA-256 in 64 hexadecimal digits, in lower case")
	case r.Lifetime < 0:
		return invalid("lifetime", "is negative: name how long the token is to be accepted, or leave it out")
	}
	return nil
}

// A Token is what the pool tells of a token.
type Token struct {
	Name        string     `json:"name" jsonschema:"Its name."`
	Role        jobs.Role  `json:"role" jsonschema:"What its holder may do."`
	Fingerprint string     `json:"fingerprint" jsonschema:"The first 12 digits of its hash, by which a token that was found is recognized."`
	Created     time.Time  `json:"created" jsonschema:"When it was added."`
	By          string     `json:"by" jsonschema:"Who has added it."`
	Expires     *time.Time `json:"expires,omitempty" jsonschema:"When it is accepted no more, unless it is removed before."`
	LastUsed    *time.Time `json:"last_used,omitempty" jsonschema:"When it was last accepted, to about a minute."`
}

// A TokenPage is a page of tokens.
type TokenPage struct {
	Tokens []Token `json:"tokens" jsonschema:"The tokens."`
	Next   string  `json:"next,omitempty" jsonschema:"There if the list goes on: what the next request has as after."`
}
