import assert from 'node:assert/strict'
import { Session } from 'node:inspector/promises'
import { after, test, type TestContext } from 'node:test'
import { CountingServer } from '../e2e/support/counting.ts'
import { cleanUp } from '../e2e/support/gateway.ts'
import { closeClients, connect } from '../e2e/support/sdk-client.ts'
import { runGateway } from '../gateway/running-gateway.ts'

after(async () => {
  await closeClients()
  await cleanUp()
})

/** The number of functions entered, by file of `src`. */
type Walk = ReadonlyMap<string, number>

/**
 * A file belongs to a walk if each repetition enters the file. Timers enter other files, on a loaded machine often, so
 * the repetitions end when this many in a row took no file away, or at the limit.
 */
const STABLE = 15
const MAX_REPETITIONS = 200

/** The watch for a stalled event loop. A loaded machine enters the file and its log throttle in each repetition. */
const STALLS = 'telemetry/stalls'
const STALLS_LOG = 'telemetry/log-throttle'

/** The repetitions before the first that counts: the first ones fill caches. */
const WARM_UP = 20

/** The stations of a call in order, with prefixes of their files' names; the first matching prefix decides. */
const stations: Readonly<Record<string, readonly string[]>> = {
  'reads the request': ['routes/', 'downstream/http/', 'downstream/accept', 'gateway/planes'],
  'limits the agent': ['access/', 'downstream/limits/'],
  'answers the agent': ['downstream/keep-alive', 'downstream/partial', 'downstream/respond'],
  'finds session and tool': ['downstream/', 'registry/'],
  'runs the policies': ['mesh/', 'policies/'],
  'asks the server': ['upstreams/', 'wire/'],
  'counts and traces': ['telemetry/'],
  'faults, arms, generations': ['chaos/', 'experiments/', 'gateway/'],
  'reads and writes JSON': ['protocol/', 'units/'],
}

async function walkOf(session: Session, step: () => Promise<unknown>): Promise<Walk> {
  for (let nth = 0; nth < WARM_UP; nth++) await step()
  let walk: Walk | undefined
  for (let nth = 0, stable = 0; nth < MAX_REPETITIONS && stable < STABLE; nth++) {
    await entered(session)
    await step()
    const now = await entered(session)
    const common: Walk = new Map([...(walk ?? now)].filter(([file]) => now.has(file)))
    stable = common.size === walk?.size ? stable + 1 : 0
    walk = common
  }
  return walk ?? new Map()
}

/** Returns the functions entered since the last look. */
async function entered(session: Session): Promise<Walk> {
  const { result } = await session.post('Profiler.takePreciseCoverage')
  const walk = new Map<string, number>()
  for (const { url, functions } of result) {
    const [, file] = /\/build\/src\/(.*)\.js$/.exec(url) ?? []
    if (file === undefined || file === STALLS) continue
    const ran = functions.filter(
      ({ functionName, ranges: [whole] }) => functionName !== '' && whole!.count > 0,
    )
    if (ran.length > 0) walk.set(file, ran.length)
  }
  return walk
}

/** Counts the walks of a call, of a reload that changes one fault, and of a fault at a call. */
async function walks(t: TestContext): Promise<Readonly<Record<'call' | 'fault' | 'reload', Walk>>> {
  const session = new Session()
  session.connect()
  t.after(() => session.disconnect())
  await session.post('Profiler.enable')
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
  const server = await CountingServer.start('legacy')
  const fault = {
    name: 'late',
    type: 'conn.latency',
    rate: 1,
    ttl: '1h',
    match: { server: 'counted', tool: 'read' },
    distribution: { kind: 'fixed', delay: '1ms' },
  }
  const parts = (faults: object[]) => ({
    servers: { counted: { url: server.urls[0], trusted: true } },
    gateway: { environment: 'test' },
    chaos: { enabled: true, seed: 1, faults },
  })
  const { gateway, isUp, admin, reload } = await runGateway(t, parts([]))
  await isUp('counted')
  const client = await connect(`${gateway.data}/mcp`)
  const read = () => client.callTool({ name: 'counted__read', arguments: { token: 'a' } })
  const call = new Map(await walkOf(session, read))
  call.delete(STALLS_LOG)
  const reloaded = await walkOf(session, () => gateway.reload('test'))
  await reload(parts([fault]))
  await admin('/admin/chaos/arm', { by: 'walk', why: 'counted' })
  const faulted = await walkOf(session, read)
  return { call, fault: new Map([...faulted].filter(([file]) => !call.has(file))), reload: reloaded }
}

const sum = (walk: Walk) => [...walk.values()].reduce((total, count) => total + count, 0)

const isAt = (file: string, beginnings: readonly string[]) =>
  beginnings.some((beginning) => file.startsWith(beginning))

function print({ call, fault, reload }: Readonly<Record<'call' | 'fault' | 'reload', Walk>>): void {
  const left = new Set([...call.keys()].sort())
  for (const [station, beginnings] of Object.entries(stations)) {
    const files = [...left].filter((file) => isAt(file, beginnings))
    for (const file of files) left.delete(file)
    console.log(`${station} (${files.length}): ${files.join(' ')}`)
  }
  console.log(`call ${call.size} files, ${sum(call)} functions`)
  console.log(`fault +${fault.size} files: ${[...fault.keys()].sort().join(' ')}`)
  console.log(`reload ${reload.size} files, ${sum(reload)} functions: ${[...reload.keys()].sort().join(' ')}`)
}

test('a call, a fault and a reload walk through few files', async (t) => {
  const counted = await walks(t)
  print(counted)
  const { call, fault, reload } = counted
  assert.ok(
    call.has('policies/retry') && call.has('upstreams/http/http-session'),
    'a call came to its server',
  )
  assert.ok(fault.has('chaos/firing/armed-fault'), 'the fault hit the call')
  assert.ok(call.size <= 88, `a call walks through ${call.size} files`)
  assert.ok(reload.size <= 65, `a reload walks through ${reload.size} files`)
  assert.ok(fault.size <= 21, `a fault adds ${fault.size} files`)
  const ofChaos = [...fault.keys()].filter((file) => file.startsWith('chaos/'))
  assert.ok(ofChaos.length <= 16, `a fault adds ${ofChaos.length} files of chaos`)
})
