package jobcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
)

// sendAgain is how often an agent that does not run yet is tried.
const sendAgain = 200 * time.Millisecond

var receiptView = cli.View[control.Receipt]{
	Header: []string{"MESSAGE", "VERB", "JOB", "ATTEMPT", "STATE"},
	Row: func(r control.Receipt) []string {
		return []string{r.ID, string(r.Verb), r.Job, fmt.Sprint(r.Attempt), r.State}
	},
	ID: func(r control.Receipt) string { return r.ID },
}

// messageCommand makes a command of a function that says what to send.
func messageCommand(shell cli.Shell, cmd *cobra.Command, say func(args []string) (control.Message, error)) *cobra.Command {
	var id string
	var timeout time.Duration
	cmd.Flags().StringVar(&id, "id", "", "id of the message, a UUID: the same id again has no effect (default: a new one)")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the job's agent to start")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := say(args)
		if err != nil {
			return err
		}
		c.ID, c.By = id, "cli"
		if c.ID == "" {
			c.ID = jobs.NewID()
		}
		return pool.WithJob(cmd.Context(), shell, args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
			if err := pool.CheckServed(p, rec); err != nil {
				return err
			}
			receipt, err := deliver(ctx, p, rec.ID, c, timeout)
			if err != nil {
				return err
			}
			waits(shell, p)
			return receiptView.One(shell.Out, *shell.Format, receipt)
		})
	}
	return cmd
}

// deliver sends a message, and waits for an agent that does not run yet.
func deliver(ctx context.Context, p *pool.Pool, id string, c control.Message, limit time.Duration) (control.Receipt, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	said := "" // by the answer before
	for {
		receipt, err := p.Client.Send(limited, id, c)
		refused, ok := errors.AsType[*control.RefusedError](err)
		switch {
		case err == nil:
			return receipt, nil
		case ctx.Err() != nil:
			return receipt, context.Cause(ctx)
		case !ok && limited.Err() != nil:
			return receipt, cli.Fail(cli.ExitTimeout, fmt.Sprintf("penstock why %s explains; send it again with --id %s, so that it does not count twice", id, c.ID), "job %s: no answer after %v%s", id, limit, said)
		case !ok || refused.Code != control.NotReady:
			return receipt, refusal(err)
		}
		said = "; before that: " + refused.Error()
		select {
		case <-limited.Done():
			return receipt, cli.Fail(cli.ExitTimeout, "penstock why "+id+" says what it waits for; --timeout waits longer", "%w", refused)
		case <-time.After(sendAgain):
		}
	}
}

// refusal gives a refusal its exit code and a way out.
func refusal(err error) error {
	refused, ok := errors.AsType[*control.RefusedError](err)
	if !ok {
		return err
	}
	hint := ""
	switch refused.Code {
	case control.Nothing, control.Unfit:
		hint = "penstock watch ID shows the agent's questions"
	case control.Cannot:
		hint = "penstock agent ls shows what each agent can do"
	case control.Over:
		hint = "penstock submit --interactive keeps an agent for more prompts"
	}
	return cli.Fail(cli.ExitDenied, hint, "%w", refused)
}

// NewSend returns the command send.
func NewSend(shell cli.Shell) *cobra.Command {
	var files []string
	cmd := messageCommand(shell, &cobra.Command{
		Use: "send ID [TEXT|-]",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(files) > 0 {
				return cobra.RangeArgs(1, 2)(cmd, args)
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		Short: "Send a prompt to a job's agent: during its turn, as its next turn, or to continue a finished job",
		Long: fmt.Sprintf(`Send gives a prompt to a job's agent: during its turn, as its next turn, or to continue
a finished job. --image adds images to the prompt, for a running agent that accepts them
(penstock agent ls): up to %d, together no larger than %[3]s, each of type %[2]s.`,
			control.MaxImages, input.List(control.ImageTypes), jobs.Bytes(control.MaxImageBytes)),
		Example: `  penstock send ID "Write a test for it, too"
  penstock send ID "The button is cut off" --image shot.png`,
	}, func(args []string) (control.Message, error) {
		text, err := jobflags.Prompt(shell, args[1:])
		if err != nil {
			return control.Message{}, err
		}
		images, err := readImages(files)
		return control.Message{Verb: control.Prompt, Text: text, Images: images}, err
	})
	cmd.Flags().StringArrayVar(&files, "image", nil, "add the image in this `FILE` to the prompt (repeatable)")
	_ = cmd.MarkFlagFilename("image", "png", "jpg", "jpeg", "gif", "webp") // the flag is there
	return cmd
}

// readImages reads the images of a prompt, within the bounds of a message.
func readImages(files []string) ([]control.Image, error) {
	if len(files) > control.MaxImages {
		return nil, cli.Usage("send the others in another message", "--image: %d images, and a message has at most %d", len(files), control.MaxImages)
	}
	var images []control.Image
	room := jobs.Bytes(control.MaxImageBytes)
	for _, file := range files {
		data, err := input.ReadFile(file, control.MaxImageBytes)
		if unread, ok := errors.AsType[*fs.PathError](err); ok {
			return nil, cli.Usage("", "--image: %w", unread)
		}
		if err != nil {
			return nil, cli.Usage(scaleDown, "--image: %w", err)
		}
		is := control.ImageType(data)
		if is == "" {
			return nil, cli.Usage("convert it to one of them", "--image: %s is none of %s", file, input.List(control.ImageTypes))
		}
		if room -= jobs.Bytes(len(data)); room < 0 {
			return nil, cli.Usage(scaleDown, "--image: the images together are larger than %s", jobs.Bytes(control.MaxImageBytes))
		}
		images = append(images, control.Image{Type: is, Data: data})
	}
	return images, nil
}

// scaleDown is the way out for images that are too large.
const scaleDown = "scale it down: magick shot.png -resize 1200x1200 small.png"

// NewAnswer returns the command answer.
func NewAnswer(shell cli.Shell) *cobra.Command {
	c := control.Message{Verb: control.Answer}
	var answers []string
	var changed string
	cmd := messageCommand(shell, &cobra.Command{
		Use: "answer ID", Args: cobra.ExactArgs(1),
		Short: "Answer a question of a running job's agent",
		Long: `Answer answers a question of the agent: with labels of its options, or with text of
your own. Without either it grants the permission that the agent asks for. With
--tool-input the tool gets another input than the agent wanted, which only some agents
take. penstock watch shows the questions.`,
	}, func([]string) (control.Message, error) {
		for _, entry := range answers {
			name, words, ok := strings.Cut(entry, "=")
			if !ok {
				return c, cli.Usage("", "--answer: %q is not N=WORDS", entry)
			}
			if c.Answers == nil {
				c.Answers = map[string]control.Words{}
			}
			c.Answers[name] = append(c.Answers[name], words)
		}
		if changed != "" {
			if !json.Valid([]byte(changed)) {
				return c, cli.Usage("", "--tool-input: %q is not JSON", changed)
			}
			c.ToolInput = json.RawMessage(strings.TrimSpace(changed))
		}
		return c, nil
	})
	flags := cmd.Flags()
	flags.StringVar(&c.Ask, "ask", "", "id of the question, if several are open")
	flags.StringArrayVar(&c.Options, "option", nil, "label of the option to choose, or its number (repeatable)")
	flags.StringVar(&c.Text, "text", "", "answer in your own words; with --deny: the reason")
	flags.StringArrayVar(&answers, "answer", nil, "N=WORDS, if the agent asks several questions at once: N is the question's number or header, WORDS an option or your own answer (repeatable; the same N again chooses another option)")
	flags.BoolVar(&c.Deny, "deny", false, "deny the permission, or decline to answer the question")
	flags.StringVar(&changed, "tool-input", "", "JSON object: grant the permission with this input of the tool, instead of what the agent asked for")
	return cmd
}

func interrupt(shell cli.Shell) *cobra.Command {
	return messageCommand(shell, &cobra.Command{
		Use: "interrupt ID", Args: cobra.ExactArgs(1), Short: "End the turn of a running job's agent, and keep the agent running",
	}, func([]string) (control.Message, error) { return control.Message{Verb: control.Interrupt}, nil })
}

func stop(shell cli.Shell) *cobra.Command {
	return messageCommand(shell, &cobra.Command{
		Use: "stop ID", Args: cobra.ExactArgs(1), Short: "Stop the agent of a running job, and collect its changes",
	}, func([]string) (control.Message, error) { return control.Message{Verb: control.Stop}, nil })
}

func set(shell cli.Shell) *cobra.Command {
	c := control.Message{Verb: control.Set}
	cmd := messageCommand(shell, &cobra.Command{
		Use: "set ID", Args: cobra.ExactArgs(1), Short: "Change the model, the mode or the effort of a running job's agent",
	}, func([]string) (control.Message, error) { return c, nil })
	cmd.Flags().StringVar(&c.Model, "model", "", "the model")
	cmd.Flags().StringVar(&c.Effort, "effort", "", "how much the model thinks, by the agent's own name: low, medium, high, …")
	cmd.Flags().StringVar(&c.Mode, "mode", "", "the mode, by the agent's own name: plan, acceptEdits, …")
	return cmd
}

func rawLine(shell cli.Shell) *cobra.Command {
	return messageCommand(shell, &cobra.Command{
		Use: "raw ID LINE|-", Args: cobra.ExactArgs(2), Short: "Send one line of its own protocol to a running job's agent, if the line is safe",
	}, func(args []string) (control.Message, error) {
		line := args[1]
		if line == "-" {
			all, err := input.ReadAll(shell.In, "the line", control.MaxBytes)
			if err != nil {
				return control.Message{}, cli.Usage("", "%w", err)
			}
			line = string(all)
		}
		if !json.Valid([]byte(line)) {
			return control.Message{}, cli.Usage("", "the line is not JSON")
		}
		return control.Message{Verb: control.Raw, Line: json.RawMessage(line)}, nil
	})
}
