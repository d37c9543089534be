package httpapi

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

func (s *Server) queue(c *call, _ Route) error {
	if err := c.params(nil); err != nil {
		return err
	}
	name := c.r.PathValue("name")
	for q, err := range s.asking(c).Queues().List(c.r.Context()) {
		if err != nil {
			return err
		}
		if q.Queue == name {
			return c.json(http.StatusOK, q)
		}
	}
	return refused(jobs.CodeNotFound, "queue %q holds no jobs and is not paused", name)
}

// Scale says how many slots a queue could use.
type Scale struct {
	Queue     string `json:"queue" jsonschema:"Its name."`
	Pending   int    `json:"pending" jsonschema:"Jobs that wait for a worker."`
	Executing int    `json:"executing" jsonschema:"Jobs that a worker holds."`
	Delayed   int    `json:"delayed" jsonschema:"Jobs that wait for a time."`
	Demand    int    `json:"demand" jsonschema:"How many slots the queue could use now."`
	Paused    bool   `json:"paused" jsonschema:"The queue is paused."`
}

// autoscale answers for one queue, also for one that has no jobs: programs that scale
// take an error for a reason to keep what is there.
func (s *Server) autoscale(c *call, _ Route) error {
	name := ""
	if err := c.params(map[string]any{"queue": &name}); err != nil {
		return err
	}
	name = cmp.Or(name, jobs.Job{}.WithDefaults().Queue)
	if err := jobs.CheckToken("queue", name); err != nil {
		return err
	}
	scale := Scale{Queue: name}
	for q, err := range s.asking(c).Queues().List(c.r.Context()) {
		if err != nil {
			return err
		}
		if q.Queue == name {
			scale = scaleOf(q)
		}
	}
	return c.json(http.StatusOK, scale)
}

// scaleOf says how many slots a queue could use: no more than its cap allows, and
// while it is paused those of the jobs that run.
func scaleOf(q operation.Queue) Scale {
	scale := Scale{Queue: q.Queue, Pending: q.Pending, Executing: q.Executing, Delayed: q.Delayed, Demand: q.Executing, Paused: q.Paused != nil}
	if !scale.Paused {
		scale.Demand += q.Pending
	}
	if q.Cap > 0 {
		scale.Demand = max(q.Executing, min(scale.Demand, q.Cap))
	}
	return scale
}

// Version is what serves, and for whom.
type Version struct {
	Version string    `json:"version" jsonschema:"The version of the program."`
	Name    string    `json:"name" jsonschema:"The name of the credential that the request has."`
	Role    jobs.Role `json:"role" jsonschema:"Its role."`
}

func (s *Server) version(c *call, _ Route) error {
	if err := c.params(nil); err != nil {
		return err
	}
	return c.json(http.StatusOK, Version{s.cfg.Version, c.who.Name, c.who.Role})
}

// description answers with a document that describes an interface.
func description(of func(Config) func() ([]byte, error)) func(*Server, *call, Route) error {
	return func(s *Server, c *call, route Route) error {
		describe := of(s.cfg)
		if describe == nil {
			return refused(jobs.CodeNotFound, "this server has no document that describes it")
		}
		document, err := describe()
		if err != nil {
			return err
		}
		return c.document(route.Media, document)
	}
}

func openAPI(cfg Config) func() ([]byte, error) { return cfg.OpenAPI }

func asyncAPI(cfg Config) func() ([]byte, error) { return cfg.AsyncAPI }

func (s *Server) schema(c *call, route Route) error {
	if s.cfg.Schema == nil {
		return refused(jobs.CodeNotFound, "this server has no schemas")
	}
	document, err := s.cfg.Schema(strings.TrimSuffix(c.r.PathValue("name"), ".json"))
	if err != nil {
		return refused(jobs.CodeNotFound, "%v", err)
	}
	return c.document(route.Media, document)
}

func (c *call) document(kind string, content []byte) error {
	if err := c.params(nil); err != nil {
		return err
	}
	c.Header().Set("Content-Type", kind)
	_, err := c.Write(content)
	return err
}
