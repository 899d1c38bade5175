import { matcher } from '../../mesh/match.ts'
import type { Path } from '../files/path.ts'
import type { Config } from '../schema/schema.ts'
import type { Finding } from './finding.ts'

type Policies = Config['policies']
type Settings = Omit<Policies['overrides'][number], 'match' | 'effect'>

/** Settings of one place in the file, over the defaults. */
interface Place {
  readonly path: Path
  readonly settings: Settings
}

/** Policies that contradict each other, though each of them is right by itself. */
export function contradictions(config: Config): Finding[] {
  const { defaults, overrides, sets } = config.policies
  const places: Place[] = [
    { path: ['policies', 'defaults'], settings: defaults },
    ...overrides.map((settings, index) => ({ path: ['policies', 'overrides', index], settings })),
    ...Object.entries(sets).map(([name, settings]) => ({ path: ['policies', 'sets', name], settings })),
  ]
  return [
    ...places.flatMap((place) => [
      ...uselessTimeout(place, defaults),
      ...uselessHedge(place, defaults),
      ...unknownFallback(place, config),
    ]),
    ...overrides.flatMap((_, index) => fallbackCycle(index, config)),
  ]
}

/** The timeout that is in force without a word about it gives way to any deadline. */
const UNSAID_TIMEOUT_MS = 60_000

function uselessTimeout({ path, settings }: Place, defaults: Settings): Finding[] {
  const { attemptTimeout } = settings
  const deadline = settings.deadline ?? defaults.deadline
  if (!attemptTimeout || !deadline || attemptTimeout.timeout === UNSAID_TIMEOUT_MS) return []
  if (attemptTimeout.timeout <= deadline.total) return []
  const message = `expected at most the deadline of ${deadline.total} ms, which covers all attempts, found ${attemptTimeout.timeout} ms`
  return [{ path: [...path, 'attemptTimeout', 'timeout'], at: 'value', message }]
}

function uselessHedge({ path, settings }: Place, defaults: Settings): Finding[] {
  const { hedge } = settings
  const timeout = settings.attemptTimeout ?? defaults.attemptTimeout
  if (!hedge || !timeout || typeof hedge.after !== 'number' || hedge.after < timeout.timeout) return []
  const message = `expected less than the attempt timeout of ${timeout.timeout} ms, found ${hedge.after} ms`
  return [{ path: [...path, 'hedge', 'after'], at: 'value', message }]
}

function unknownFallback({ path, settings }: Place, { mcpServers }: Config): Finding[] {
  const server = settings.degrade ? settings.degrade.fallback?.server : undefined
  if (server === undefined || Object.hasOwn(mcpServers, server)) return []
  const message = `there is no server "${server}"`
  return [{ path: [...path, 'degrade', 'fallback', 'server'], at: 'value', message }]
}

/** Follows fallbacks from what an override applies to: one that comes back would never end. */
function fallbackCycle(index: number, { policies, mcpServers }: Config): Finding[] {
  const { degrade, match } = policies.overrides[index] ?? {}
  const first = degrade ? degrade.fallback : undefined
  if (first === undefined) return []
  const holds = matcher({ server: match?.server })
  const starts = Object.keys(mcpServers).filter((server) => holds(server, 'tools/call', undefined))
  const cycle = starts.map((server) => cycleFrom(first.server ?? server, first.tool, policies))
  const found = cycle.find((way) => way !== undefined)
  if (found === undefined) return []
  const path = ['policies', 'overrides', index, 'degrade', 'fallback']
  return [{ path, at: 'key', message: `comes back to itself: ${found.join(' → ')}` }]
}

function cycleFrom(server: string, tool: string, policies: Policies): readonly string[] | undefined {
  const way: string[] = []
  for (;;) {
    const here = `${server}/${tool}`
    if (way.includes(here)) return [...way, here]
    way.push(here)
    const next = fallbackOf(server, tool, policies)
    if (next === undefined) return undefined
    server = next.server ?? server
    tool = next.tool
  }
}

function fallbackOf(server: string, tool: string, { defaults, overrides }: Policies) {
  const decisive = overrides.findLast(
    ({ match, degrade }) => degrade !== undefined && matcher(match)(server, 'tools/call', tool),
  )
  const degrade = decisive === undefined ? defaults.degrade : decisive.degrade
  return degrade ? degrade.fallback : undefined
}
