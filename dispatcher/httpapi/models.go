package httpapi

import (
	"net/http"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// modelsPath is where models speak the Model Context Protocol.
const modelsPath = "/mcp"

// serveModels passes requests of models on. They are admitted as all others are; what an
// identity may is for the tools to decide.
func (s *Server) serveModels(w http.ResponseWriter, _ *http.Request) {
	c := w.(*call)
	err := c.readBody(nil)
	if err == nil && c.who.Role == "" {
		err = refused(jobs.CodeForbidden, "not allowed: no role may not use %s", modelsPath)
	}
	if err == nil {
		ctx, done := s.untilEnding(c.r.Context())
		defer done()
		// A tool may take longer than an answer otherwise may.
		if err = c.control().SetWriteDeadline(time.Time{}); err == nil {
			err = s.cfg.Models(&patientWriter{c}, c.r.WithContext(ctx), c.who, c.body)
		}
	}
	if err != nil && c.status == 0 {
		s.refuse(c, err)
	}
}

// A patientWriter sends an answer that may be silent for long. Its client must take each
// part of it in time.
type patientWriter struct{ *call }

func (w *patientWriter) Write(p []byte) (n int, err error) {
	err = w.within(func() error { n, err = w.call.Write(p); return err })
	return n, err
}

// FlushError is for [http.ResponseController].
func (w *patientWriter) FlushError() error { return w.within(w.control().Flush) }

// Flush is for programs that know no other way.
func (w *patientWriter) Flush() { _ = w.FlushError() } // the next Write has the error, too

func (w *patientWriter) within(send func() error) error {
	if err := w.control().SetWriteDeadline(time.Now().Add(w.patience)); err != nil {
		return err
	}
	if err := send(); err != nil {
		return err
	}
	return w.control().SetWriteDeadline(time.Time{})
}
