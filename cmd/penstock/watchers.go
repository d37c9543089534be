package main

import "context"

type watchers struct{}

func newWatchers(string) *watchers { return &watchers{} }

func (w *watchers) hooks() hooks { return hooks{} }

func (w *watchers) serve(ctx context.Context, _ *pool, _ string) error {
	<-ctx.Done()
	return nil
}
