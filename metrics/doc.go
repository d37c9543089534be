// Package metrics turns hooks into Prometheus series.
//
//	reg := NewRegistry ─▶ NewWorker, NewDispatcher, NewNATS ─▶ Handler
//
// The objects have methods that fit the hook functions of the others and take
// plain values, so that nobody who does work knows who counts it. The program
// joins the two.
//
// A label has a closed set of values: what is configured (queues, agents,
// routes) or part of the vocabulary (outcomes, reasons, stages). Anything else
// becomes "other". No job, session, repository, user or model is ever a
// label: their number has no bound. Every series exists from the beginning,
// with zero, so that a rate of something that happens for the first time is
// right.
package metrics
