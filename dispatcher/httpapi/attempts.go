package httpapi

import (
	"net/http"

	"github.com/penstock-run/penstock/jobs/summary"
)

func (s *Server) attempts(c *call, _ Route) error {
	if err := c.params(nil); err != nil {
		return err
	}
	rec, err := s.asking(c).Get(c.r.Context(), c.r.PathValue("id"))
	if err != nil {
		return err
	}
	found := summary.Attempts{Attempts: []summary.Attempt{}}
	for e, err := range s.asking(c).Events(c.r.Context(), rec.ID, 0) {
		if err != nil {
			return err
		}
		if e.Job != rec.ID {
			continue
		}
		if err := found.Add(e); err != nil {
			return err
		}
	}
	return c.json(http.StatusOK, found)
}
