package client

import (
	"context"
	"iter"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/token"
)

// Tokens asks about the tokens by which clients of HTTP prove who they are.
type Tokens struct{ c *Client }

// Tokens returns the operations on tokens.
func (c *Client) Tokens() Tokens { return Tokens{c} }

// Add makes a token and has the pool accept it: for a lifetime, or until it is removed
// if that is zero. The secret is here and nowhere else, since the pool gets its hash.
func (t Tokens) Add(ctx context.Context, name string, role jobs.Role, lifetime time.Duration) (token.Secret, operation.Token, error) {
	secret := token.New()
	added, err := Ask(ctx, t.c, operation.TokenAdd, operation.TokenRequest{
		Name: name, Role: role, Hash: secret.Hash(), Lifetime: jobs.Duration(lifetime),
	})
	return secret, added, err
}

// List returns the tokens by name.
func (t Tokens) List(ctx context.Context) iter.Seq2[operation.Token, error] {
	return pages("", func(after string) ([]operation.Token, string, error) {
		page, err := Ask(ctx, t.c, operation.TokenList, operation.PageRequest{After: after})
		return page.Tokens, page.Next, err
	})
}

// Remove has the pool accept a token no more.
func (t Tokens) Remove(ctx context.Context, name string) error {
	_, err := Ask(ctx, t.c, operation.TokenRemove, operation.Named{Name: name})
	return err
}
