package main

import (
	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/worker"
)

// hooks connect the services to their observers. The zero value observes nothing.
type hooks struct {
	queue      queue.Hooks
	dispatcher dispatcher.Hooks
	worker     worker.Hooks
}
