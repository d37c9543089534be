// Package metrics turns hooks into Prometheus series.
//
//	reg := NewRegistry ─▶ NewWorker, NewDispatcher, NewNATS ─▶ Handler
//
// The objects have methods that fit the hook functions of other packages and take
// plain values, so that those packages do not know what counts their work. The
// program joins the two.
//
// A label has a closed set of values: either configured names (queues, agents,
// routes) or words of the vocabulary (outcomes, reasons, stages). Anything else
// becomes "other". No job, session, repository, user or model is ever a
// label: their number has no bound. Every series exists from the beginning,
// with zero, so that the rate is right when something happens for the first
// time.
package metrics
