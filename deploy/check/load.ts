import { setTimeout } from 'node:timers/promises'
import { RawClient } from '../../test/e2e/support/raw-client.ts'
import type { World } from './world.ts'

/** Returns the `_meta` of a call with a task. */
export const tagged = (intent: string) => ({ 'dev.breakwater/intent': intent })

/**
 * Plays tasks of agents in turn until `isEnough` returns true for the number of played tasks. Tasks differ in their
 * failures. Returns the number of played tasks.
 */
export async function drive(
  stage: World,
  isEnough: (tasks: number) => boolean | Promise<boolean>,
): Promise<number> {
  const { flaky, mcp } = stage
  const client = await RawClient.open(mcp)
  await flaky.behave({
    read: { reset: 0.1 },
    write: { failing: 0.5, delayMs: 20 },
    typed: { delayMs: 20, invalid: 0.1, failing: 0.1 },
  })
  let tasks = 0
  while (!(await isEnough(tasks))) {
    const intent = `task-${tasks++}`
    await Promise.all([
      ...['read', 'read', 'typed'].map((tool) => call(client, tool, tagged(intent))),
      // Both calls need the only slot of the tool.
      call(client, 'write', tagged(intent)),
      call(client, 'write', tagged(intent)),
      call(client, 'typed', tagged(intent), { n: 'one' }),
      // Twice the same order.
      call(client, 'read', { 'dev.breakwater/idempotency-key': `order-${tasks >> 1}` }),
      // The gateway has learned that the tool takes longer than the deadline.
      call(client, 'typed', { 'dev.breakwater/deadline-ms': 8 }),
      // A mistake of the agent.
      call(client, 'made_up', {}),
      client.request('prompts/list'),
    ])
    // Every other task is reported as failed; the nameless task is unknown.
    await report(stage, [
      { intent, outcome: tasks % 2 === 0 ? 'succeeded' : 'failed' },
      { intent: 'made up', outcome: 'failed' },
    ])
    await setTimeout(40)
  }
  return tasks
}

/** Calls a tool and ignores the result: some faults produce invalid answers. */
function call(client: RawClient, name: string, _meta: object, args: object = {}): Promise<unknown> {
  return client.request('tools/call', { name, arguments: args, _meta }).catch(() => undefined)
}

export interface Ending {
  readonly intent: string
  readonly outcome: 'succeeded' | 'failed'
}

export async function report({ control, token }: World, endings: readonly Ending[]): Promise<void> {
  await fetch(`${control}/admin/outcomes`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify(endings),
  })
}
