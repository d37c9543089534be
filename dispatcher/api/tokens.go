package api

import (
	"context"

	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/responder"
)

func (s *Server) tokenHandlers() []responder.Handler {
	return []responder.Handler{
		handle(operation.TokenAdd, func(ctx context.Context, c caller, r operation.TokenRequest) (operation.Token, error) {
			return s.cfg.Tokens.Add(ctx, r, c.name())
		}),
		handle(operation.TokenList, s.tokenList),
		handle(operation.TokenRemove, func(ctx context.Context, _ caller, r operation.Named) (operation.Named, error) {
			return r, s.cfg.Tokens.Remove(ctx, r.Name)
		}),
	}
}

func (s *Server) tokenList(ctx context.Context, c caller, r operation.PageRequest) (operation.TokenPage, error) {
	list, err := s.cfg.Tokens.List(ctx)
	if err != nil {
		return operation.TokenPage{}, err
	}
	list = after(list, r.After, func(t operation.Token) string { return t.Name })
	part, more, err := page(list, r.Limit, c.room)
	answer := operation.TokenPage{Tokens: part}
	if more {
		answer.Next = part[len(part)-1].Name
	}
	return answer, err
}
