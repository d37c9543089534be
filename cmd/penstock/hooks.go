package main

import (
	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/worker"
)

// hooks join those who work with those who watch. The zero value watches
// nothing.
type hooks struct {
	queue      queue.Hooks
	dispatcher dispatcher.Hooks
	worker     worker.Hooks
}
