package httpapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// patch sends the patch of a finished job, however long it is.
func (s *Server) patch(c *call, _ Route) (err error) {
	if err := c.params(nil); err != nil {
		return err
	}
	rec, err := s.asking(c).Get(c.r.Context(), c.r.PathValue("id"))
	if err != nil {
		return err
	}
	content, err := s.asking(c).Patch(c.r.Context(), rec.ID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	c.file("text/x-diff; charset=utf-8", rec.ID+".patch")
	return c.copy(content)
}

// artifact sends an artifact of an attempt. Its name is looked for among those that the
// attempt has, so none leads elsewhere.
func (s *Server) artifact(c *call, _ Route) (err error) {
	var epoch uint64
	if err := c.params(map[string]any{"epoch": &epoch}); err != nil {
		return err
	}
	rec, err := s.asking(c).Get(c.r.Context(), c.r.PathValue("id"))
	if err != nil {
		return err
	}
	list, err := s.asking(c).Artifacts(c.r.Context(), rec.ID, epoch)
	if err != nil {
		return err
	}
	name := c.r.PathValue("name")
	at := slices.IndexFunc(list.Artifacts, func(a jobs.Artifact) bool { return a.Name == name })
	if at < 0 {
		return refused(jobs.CodeNotFound, "attempt %d of job %s has no artifact %q: /v1/jobs/%s/artifacts lists what it has", list.Epoch, rec.ID, name, rec.ID)
	}
	content, err := s.asking(c).Artifact(c.r.Context(), rec.ID, list.Epoch, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	// Whatever an agent calls it: a browser is to keep it, and not to show it.
	c.file("application/octet-stream", name[strings.LastIndexByte(name, '/')+1:])
	c.Header().Set("Content-Length", strconv.FormatInt(list.Artifacts[at].Bytes, 10))
	return c.copy(content)
}

// agentLog sends the lines that a job's agent has printed, as they are stored now.
func (s *Server) agentLog(c *call, _ Route) error {
	var after uint64
	if err := c.params(map[string]any{"after": &after}); err != nil {
		return err
	}
	rec, err := s.asking(c).Get(c.r.Context(), c.r.PathValue("id"))
	if err != nil {
		return err
	}
	c.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for event, err := range s.asking(c).Events(c.r.Context(), rec.ID, after) {
		if err != nil {
			return err
		}
		if event.Raw == nil || event.Job != rec.ID {
			continue
		}
		line := append([]byte(event.Raw.Text), event.Raw.JSON...)
		if err := c.say(append(line, '\n'), false); err != nil {
			return err
		}
	}
	return nil
}

// file says that the answer is a file to be kept.
func (c *call) file(kind, name string) {
	c.Header().Set("Content-Type", kind)
	c.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
}

// copy sends a file to the client, which must take each part of it in time.
func (c *call) copy(content io.Reader) error {
	if c.r.Method == http.MethodHead {
		return nil
	}
	part := make([]byte, 64<<10)
	for {
		n, err := content.Read(part)
		if n > 0 {
			if err := c.say(part[:n], false); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the file: %w", err)
		}
	}
}
