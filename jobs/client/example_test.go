package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/operation"
)

// A program submits a job and waits for its result.
func Example() {
	ctx := context.Background()
	url, stop := exampleServer(succeed) // in place of penstock serve
	defer stop()

	nc, err := nats.Connect(url)
	if err != nil {
		panic(err)
	}
	defer nc.Close()
	pool, err := client.Open(ctx, nc, client.Config{})
	if err != nil {
		panic(err)
	}
	made, err := pool.Submit(ctx, jobs.Job{
		Prompt: "Fix the typo in README", Repo: jobs.Repo{URL: "/src/app"}, Agent: jobs.Agent{Name: "claude"},
	})
	if err != nil {
		panic(err)
	}
	result, err := pool.Wait(ctx, made.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Outcome)
	// Output: success
}

// The events of a session come as they are stored, until the job has finished.
func ExampleClient_Follow() {
	ctx := context.Background()
	pool, stop := examplePool(succeed)
	defer stop()

	made, err := pool.Submit(ctx, exampleJob)
	if err != nil {
		panic(err)
	}
	for event, err := range pool.Follow(ctx, made.ID, 0) {
		if err != nil {
			panic(err)
		}
		fmt.Println(event.Seq, event.Kind)
	}
	// Output:
	// 1 job.submitted
	// 2 job.claimed
	// 3 job.finished
}

// A list reads page after page, for as long as the loop goes on.
func ExampleClient_List() {
	ctx := context.Background()
	pool, stop := examplePool(nil)
	defer stop()

	for _, item := range []string{"red", "green", "blue"} {
		job := exampleJob
		job.Batch, job.Item = "colors", item
		if _, err := pool.Submit(ctx, job); err != nil {
			panic(err)
		}
	}
	for rec, err := range pool.List(ctx, operation.ListRequest{Batch: "colors", State: jobs.Pending}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(rec.Item, rec.State)
	}
	// Output:
	// red pending
	// green pending
	// blue pending
}

// A program that follows a session answers what the agent asks.
func ExampleClient_Answer() {
	ctx := context.Background()
	pool, stop := examplePool(ask)
	defer stop()

	made, err := pool.Submit(ctx, exampleJob)
	if err != nil {
		panic(err)
	}
	for event, err := range pool.Follow(ctx, made.ID, 0) {
		if err != nil {
			panic(err)
		}
		if event.Kind == jobs.AskOpened {
			receipt, err := pool.Answer(ctx, made.ID, control.Message{Options: []string{"Red"}})
			if err != nil {
				panic(err)
			}
			fmt.Println("answer", receipt.State)
		}
	}
	result, err := pool.Wait(ctx, made.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(result.Outcome)
	// Output:
	// answer accepted
	// success
}

// Errors are told apart by errors.Is where package jobs has a value for them, and all by
// their codes.
func Example_errors() {
	ctx := context.Background()
	pool, stop := examplePool(nil)
	defer stop()

	made, err := pool.Submit(ctx, exampleJob)
	if err != nil {
		panic(err)
	}
	_, err = pool.Result(ctx, made.ID)
	fmt.Println(errors.Is(err, jobs.ErrNotFinished), jobs.Code(err))
	_, err = pool.Retry(ctx, made.ID, false)
	fmt.Println(jobs.Code(err))
	_, err = pool.Submit(ctx, jobs.Job{Prompt: "Fix it"})
	if invalid, ok := errors.AsType[*jobs.InvalidError](err); ok {
		fmt.Println(invalid.Fields[0].Field)
	}
	// Output:
	// true not_finished
	// not_retryable
	// agent.name
}

// The jobs of a paused queue wait until it is resumed.
func ExampleQueues_Pause() {
	ctx := context.Background()
	pool, stop := examplePool(nil)
	defer stop()

	job := exampleJob
	job.Queue = "night"
	made, err := pool.Submit(ctx, job)
	if err != nil {
		panic(err)
	}
	until := time.Now().Add(8 * time.Hour)
	if _, err := pool.Queues().Pause(ctx, operation.PauseRequest{Name: "night", Until: &until}); err != nil {
		panic(err)
	}
	standing, err := pool.Why(ctx, made.ID)
	if err != nil {
		panic(err)
	}
	fmt.Println(standing.Constraint)
	left, err := pool.Queues().Resume(ctx, "night")
	if err != nil {
		panic(err)
	}
	fmt.Println(len(left), "pauses are left")
	// Output:
	// queue_paused
	// 0 pauses are left
}
