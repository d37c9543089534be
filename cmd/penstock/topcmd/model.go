package topcmd

import (
	"context"
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/why"
)

// patience is how long an answer may take before the pool counts as away.
const patience = 5 * time.Second

// A model is the state of the screen. Bubble Tea calls its methods one after the other.
type model struct {
	// request returns the context of a request, which ends with the program: Bubble Tea
	// gives the functions that it runs none.
	request          func() (context.Context, context.CancelFunc)
	client           *client.Client
	window, interval time.Duration
	color            bool

	width, height int
	seen          *snapshot // nil: none yet
	failed        error     // why the last look failed
	since         time.Time // of the first failure

	at     int // the table
	line   int // the chosen row
	column [4]int
	filter string
	typing bool // of the filter

	standing    *why.Standing // is shown instead of the table
	asking      string        // the queue whose pause is to be confirmed
	resume      bool          // it is to be resumed
	notice      string        // what came of the last key
	interrupted bool
}

func newModel(c *client.Client, window, interval time.Duration) *model {
	return &model{client: c, window: window, interval: interval, width: 80, height: 24}
}

// Messages to the model.
type (
	lookNow  struct{}
	looked   struct{ s snapshot }
	lookFail struct{ err error }
	noticed  struct{ text string }
	explains struct{ s why.Standing }
)

// Init begins to look.
func (m *model) Init() tea.Cmd { return m.look }

func (m *model) look() tea.Msg {
	ctx, cancel := m.request()
	defer cancel()
	s, err := look(ctx, m.client, m.window)
	if err != nil {
		return lookFail{err}
	}
	return looked{s}
}

// again looks again after the interval.
func (m *model) again() tea.Cmd {
	return tea.Tick(m.interval, func(time.Time) tea.Msg { return lookNow{} })
}

// Update changes the model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case lookNow:
		return m, m.look
	case looked:
		m.see(msg.s)
		return m, m.again()
	case soon:
		m.see(msg.s)
	case lookFail:
		if m.failed == nil {
			m.since = time.Now()
		}
		m.failed = msg.err
		return m, m.again()
	case noticed:
		m.notice = msg.text
		return m, m.lookOnce()
	case explains:
		m.standing = &msg.s
	case tea.KeyPressMsg:
		return m, m.key(msg.String(), msg.Text)
	}
	return m, nil
}

func (m *model) see(s snapshot) {
	m.seen, m.failed = &s, nil
	m.line = min(m.line, max(len(m.rows())-1, 0))
}

// lookOnce looks between two looks of the interval, so that a change shows at once.
func (m *model) lookOnce() tea.Cmd {
	return func() tea.Msg {
		if got, ok := m.look().(looked); ok {
			return soon(got)
		}
		return nil
	}
}

// soon is a look that is not followed by another one.
type soon looked

func (m *model) table() table {
	if m.seen == nil {
		return table{}
	}
	return m.seen.tables()[m.at]
}

func (m *model) rows() []row { return m.table().chosen(m.filter, m.column[m.at]) }

// chosen is the row under the cursor.
func (m *model) chosen() (row, bool) {
	rows := m.rows()
	if m.line >= len(rows) {
		return row{}, false
	}
	return rows[m.line], true
}

func (m *model) explain(job string) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := m.request()
		defer cancel()
		s, err := m.client.Why(ctx, job)
		if err != nil {
			return noticed{err.Error()}
		}
		return explains{s}
	}
}

// change pauses or resumes a queue.
func (m *model) change(queue string, resume bool) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := m.request()
		defer cancel()
		if resume {
			if _, err := m.client.Queues().Resume(ctx, queue); err != nil {
				return noticed{err.Error()}
			}
			return noticed{fmt.Sprintf("queue %s is resumed", queue)}
		}
		if _, err := m.client.Queues().Pause(ctx, operation.PauseRequest{Name: queue}); err != nil {
			return noticed{err.Error()}
		}
		return noticed{fmt.Sprintf("queue %s is paused: what runs goes on", queue)}
	}
}
