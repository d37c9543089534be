package lane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs/internal/subject"
)

// A class is a queue, or the part of it whose jobs have the same needs. Each
// has lanes of its own, so the broker never offers a job to a worker that lacks a
// label it needs, and no delivery is given back. Queues are known by their
// name; classes with needs are registered before their first job is accepted.

// Register makes a class known to the workers that could serve it.
func (l *Lanes) Register(ctx context.Context, class string) error {
	_, needs := subject.SplitClass(class)
	l.mu.Lock()
	known := l.classes[class]
	l.mu.Unlock()
	if known || len(needs) == 0 {
		return nil
	}
	if err := l.conn.Publish(ctx, &nats.Msg{Subject: subject.Class(class), Data: []byte("{}")}); err != nil {
		return fmt.Errorf("register class %s: %w", class, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.classes[class] = true
	return nil
}

// registered returns the classes that have needs.
func (l *Lanes) registered(ctx context.Context) ([]string, error) {
	subjects, err := l.conn.Subjects(ctx, subject.KVStream(subject.Settings), subject.Class("*"))
	if err != nil {
		return nil, fmt.Errorf("list classes: %w", err)
	}
	var classes []string
	for s := range subjects {
		classes = append(classes, s[strings.LastIndexByte(s, '.')+1:])
	}
	slices.Sort(classes)
	return classes, nil
}

// classesOf returns all classes of a queue.
func (l *Lanes) classesOf(ctx context.Context, queue string) ([]string, error) {
	classes, err := l.registered(ctx)
	if err != nil {
		return nil, err
	}
	return append([]string{queue}, slices.DeleteFunc(classes, func(class string) bool {
		of, _ := subject.SplitClass(class)
		return of != queue
	})...), nil
}

// Served returns the classes that a worker of some queues serves, if it has
// some labels.
func (l *Lanes) Served(ctx context.Context, queues, labels []string) ([]string, error) {
	if len(labels) == 0 {
		return queues, nil
	}
	classes, err := l.registered(ctx)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(queues)
	for _, class := range classes {
		if Serves(class, queues, labels) {
			all = append(all, class)
		}
	}
	return all, nil
}

// Serves reports whether who serves the queues and has the labels may take jobs of a class.
func Serves(class string, queues, labels []string) bool {
	queue, needs := subject.SplitClass(class)
	lacks := slices.ContainsFunc(needs, func(need string) bool { return !slices.Contains(labels, need) })
	return !lacks && slices.Contains(queues, queue)
}
