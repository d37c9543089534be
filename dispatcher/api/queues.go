package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/quota"
	"github.com/penstock-run/penstock/jobs/schedule"
)

// counts say what the pool holds, by queue and by batch.
type counts struct {
	queue   *queue.Queue
	catalog *catalog.Catalog
	quotas  quota.Quotas
}

// queues returns what each queue holds that has jobs or is paused, by name.
func (n counts) queues(ctx context.Context) ([]operation.Queue, error) {
	list, err := n.catalog.Queues(ctx)
	if err != nil {
		return nil, err
	}
	holds, err := n.queue.Holds().List(ctx)
	if err != nil {
		return nil, err
	}
	caps, err := n.queue.Permits().Caps(ctx)
	if err != nil {
		return nil, err
	}
	for i, h := range holds {
		if h.Kind != jobs.HoldQueue {
			continue
		}
		at := slices.IndexFunc(list, func(q operation.Queue) bool { return q.Queue == h.Name })
		if at < 0 {
			at = len(list)
			list = append(list, operation.Queue{Queue: h.Name})
		}
		list[at].Paused = &holds[i]
	}
	for i := range list {
		list[i].Cap = capOf(caps, list[i].Queue)
		setQuotas(&list[i], n.quotas)
	}
	slices.SortFunc(list, func(a, b operation.Queue) int { return cmp.Compare(a.Queue, b.Queue) })
	return list, nil
}

// capOf returns how many jobs of a queue may run at once, as its own cap says.
func capOf(caps schedule.Caps, name string) int {
	for _, c := range caps.Of(jobs.Record{Queue: name}) {
		if c.Key == "queue:"+name {
			return c.Most
		}
	}
	return 0
}

// setQuotas says how many jobs of a queue may be open, and how much may be stored of them, as
// its own quotas say.
func setQuotas(to *operation.Queue, quotas quota.Quotas) {
	for _, q := range quotas.Of(jobs.Record{Queue: to.Queue}) { // of a queue, and nothing else
		if q.Unit == quota.StoredBytes {
			to.QuotaBytes = jobs.Bytes(q.Most)
		} else {
			to.Quota = int(q.Most)
		}
	}
}

func (s *Server) queueList(ctx context.Context, c caller, r operation.PageRequest) (operation.QueuePage, error) {
	list, err := s.counts.queues(ctx)
	if err != nil {
		return operation.QueuePage{}, err
	}
	list = after(list, r.After, func(q operation.Queue) string { return q.Queue })
	part, more, err := page(list, r.Limit, c.room)
	answer := operation.QueuePage{Queues: part}
	if more {
		answer.Next = part[len(part)-1].Queue
	}
	return answer, err
}

// names lists the queues or the batches that the pool has something of.
func (n counts) names(ctx context.Context, kind jobs.HoldKind) ([]string, error) {
	holds, err := n.queue.Holds().List(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, h := range holds {
		found[h.Name] = found[h.Name] || h.Kind == kind
	}
	if kind == jobs.HoldBatch {
		list, err := n.catalog.Batches(ctx, "")
		if err != nil {
			return nil, err
		}
		for _, b := range list {
			found[b.Batch] = true
		}
	} else {
		list, err := n.catalog.Queues(ctx)
		if err != nil {
			return nil, err
		}
		for _, q := range list {
			found[q.Queue] = true
		}
		found[jobs.Job{}.WithDefaults().Queue] = true
		workers, err := n.queue.Workers().List(ctx)
		if err != nil {
			return nil, err
		}
		for _, w := range workers {
			for _, name := range w.Queues {
				found[name] = true
			}
		}
	}
	maps.DeleteFunc(found, func(name string, there bool) bool { return name == "" || !there })
	return slices.Sorted(maps.Keys(found)), nil
}

// exists refuses the name of a queue or a batch that the pool has nothing of, and
// names some that it has.
func (s *Server) exists(ctx context.Context, kind jobs.HoldKind, name string) error {
	if err := jobs.CheckToken("name", name); err != nil {
		return err
	}
	known, err := s.counts.names(ctx, kind)
	if err != nil || slices.Contains(known, name) {
		return err
	}
	const most = 10
	some := ""
	if n := len(known); n > 0 && n <= most {
		some = "; there are " + strings.Join(known, ", ")
	}
	return fmt.Errorf("%w: there is no %s %q%s", jobs.ErrNotFound, kind, name, some)
}

// pause begins a hold.
func (s *Server) pause(kind jobs.HoldKind) func(context.Context, caller, operation.PauseRequest) (jobs.Hold, error) {
	return func(ctx context.Context, c caller, r operation.PauseRequest) (jobs.Hold, error) {
		h := jobs.Hold{Kind: kind, Name: r.Name, By: c.name(), Until: r.Until}
		if !r.Force {
			if err := s.exists(ctx, kind, r.Name); err != nil {
				return h, err
			}
		}
		if err := s.cfg.Queue.Hold(ctx, h); err != nil {
			return h, err
		}
		list, err := s.cfg.Queue.Holds().List(ctx)
		for _, now := range list {
			if now.Kind == kind && now.Name == r.Name {
				return now, nil
			}
		}
		return h, err // it was for a moment only
	}
}

// unpause ends a hold and returns those that are left.
func (s *Server) unpause(kind jobs.HoldKind) func(context.Context, caller, operation.Named) (operation.HoldList, error) {
	return func(ctx context.Context, _ caller, r operation.Named) (operation.HoldList, error) {
		if err := s.exists(ctx, kind, r.Name); err != nil {
			return operation.HoldList{}, err
		}
		if err := s.cfg.Queue.Release(ctx, kind, r.Name, s.catalog.All); err != nil {
			return operation.HoldList{}, err
		}
		return s.holds(ctx)
	}
}

func (s *Server) holds(ctx context.Context) (operation.HoldList, error) {
	list, err := s.cfg.Queue.Holds().List(ctx)
	if list == nil {
		list = []jobs.Hold{}
	}
	return operation.HoldList{Holds: list}, err
}
