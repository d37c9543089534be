package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// endings are the signals that end a command in order. SIGHUP is one of them if it
// means that the terminal has gone, unless it is ignored (nohup).
func (a *app) endings() []os.Signal {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil || signal.Ignored(syscall.SIGHUP) {
		return ends
	}
	_ = tty.Close() // nothing was read
	a.terminal = true
	return append(ends, syscall.SIGHUP)
}

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
