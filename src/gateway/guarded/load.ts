import type { Agent } from '../../load/twins.ts'
import { exposedName, type KnownTools, type Step, type Workload } from '../../load/workload.ts'
import { Cancellation } from '../../mesh/cancel.ts'
import type { Clock } from '../../mesh/clock.ts'
import type { Live } from '../../mesh/live.ts'
import type { Spec } from '../../experiments/guarded/spec.ts'
import type { GatewayGeneration } from '../../registry/generation.ts'

export interface LoadParts {
  readonly clock: Clock
  readonly live: Pick<Live<GatewayGeneration>, 'current'>
  /** Base URL of the data plane; undefined before it listens. */
  readonly data: () => string | undefined
}

/** Pairs of tasks for each run of the player, which then releases their records. */
const PAIRS = 1_000

/** Returns the known tools, by the names agents call. */
export function toolsOf({ servers }: Pick<GatewayGeneration, 'servers'>): KnownTools {
  const known = new Map(
    [...servers.values()].map((server) => [
      server.name,
      new Map(server.entries('tools').map(({ key }) => [key, server.exposedName(key)] as const)),
    ]),
  )
  return { listed: new Set([...known.values()].flatMap((tools) => [...tools.values()])), servers: known }
}

/** Returns the reasons why a workload cannot run here; empty when it can run. */
export function loadProblems({ load }: Spec, parts: Pick<LoadParts, 'live'>): string[] {
  if (load === undefined) return []
  const tools = toolsOf(parts.live.current)
  const workload = load.workload as Workload
  return workload.tasks.flatMap(({ steps }, at) =>
    steps.flatMap((step, index) => {
      const found = exposedName(step, tools)
      return typeof found === 'string' ? [] : `load.workload.tasks[${at}].steps[${index}]: ${found.message}`
    }),
  )
}

/**
 * Plays a workload over the gateway's own data plane, as agents would. The returned function stops it. Calls `onReady`
 * when every agent that has begun has its first answer, and `onEnd` with the reason when the load cannot continue.
 */
export function playLoad(
  load: NonNullable<Spec['load']>,
  onEnd: (why: string) => void,
  { clock, live, data }: LoadParts,
  onReady: () => void,
): () => void {
  const stop = new Cancellation()
  const base = data()
  if (base === undefined) throw new Error('the gateway does not listen yet')
  void play(load, `${base}/mcp`, toolsOf(live.current), { clock, stop, onReady }).catch((error: unknown) => {
    if (!stop.aborted) onEnd((error as Error).message)
  })
  return () => stop.abort('over')
}

async function play(
  { workload: given, concurrency, seed }: NonNullable<Spec['load']>,
  url: string,
  tools: KnownTools,
  {
    clock,
    stop,
    onReady,
  }: { readonly clock: Clock; readonly stop: Cancellation; readonly onReady: () => void },
): Promise<void> {
  // Loads the modules on demand, because they include an MCP client.
  const [{ Agents }, { playTwins }] = await Promise.all([
    import('../../load/agents.ts'),
    import('../../load/twins.ts'),
  ])
  const workload = given as Workload
  const agents = await Agents.open({
    url,
    places: concurrency,
    eras: workload.eras,
    patienceMs: workload.patience,
    clock,
    stop,
  })
  const nameOf = (step: Step) => {
    const found = exposedName(step, tools)
    return typeof found === 'string' ? found : step.tool
  }
  try {
    // Both arms are empty here: the name of each agent decides its arm, so the two twins of a comparison are one task.
    const arms = { control: '', treatment: '' }
    const heard = firstAnswers(() => {
      if (!stop.aborted) onReady()
    })
    const agentAt = (place: number, side: 'control' | 'treatment', era: Workload['eras'][number]) =>
      heard(`${place} ${side} ${era}`, agents.at(place, side, era))
    for (let go = 0; !stop.aborted; go++)
      await playTwins({
        workload,
        tasks: PAIRS,
        seed: seed + go,
        concurrency,
        arms,
        clock,
        nameOf,
        agentAt,
        stop,
      })
  } finally {
    await agents.close()
  }
}

/**
 * Returns a function that watches an agent; `key` identifies the agent. Calls `onReady` once when every watched agent
 * that has begun has an answer of any kind. The first call of a session opens the sessions with servers, which may take
 * seconds.
 */
export function firstAnswers(onReady: () => void): (key: string, agent: Agent) => Agent {
  const waiting = new Set<string>()
  const answered = new Set<string>()
  let isReady = false
  return (key, agent) => {
    if (isReady || answered.has(key)) return agent
    return {
      async call(asked) {
        if (!answered.has(key)) waiting.add(key)
        const answer = await agent.call(asked)
        waiting.delete(key)
        answered.add(key)
        if (!isReady && waiting.size === 0) {
          isReady = true
          onReady()
        }
        return answer
      },
    }
  }
}
