package main

import (
	"context"
	"os"
	"os/signal"
)

// untilSignal returns a context that ends with the first of these signals. They
// have their default action again before anything hears of the first one, so a
// second one always ends the process at once.
func untilSignal(signals ...os.Signal) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan os.Signal, 1)
	signal.Notify(first, signals...)
	go func() {
		<-first
		signal.Stop(first)
		cancel()
	}()
	return ctx
}
