package httpapi

import "time"

// Hasten shortens the times of a server that has not begun.
func (s *Server) Hasten(quiet, patience time.Duration) { s.quiet, s.patience = quiet, patience }

// The answers to requests for many jobs.
type (
	Bulk    = bulkAnswer
	Drained = drained
)
