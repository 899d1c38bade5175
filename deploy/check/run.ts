import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { cleanUp } from '../../test/e2e/support/gateway.ts'
import { disagreements } from './agreement.ts'
import { ask } from './ask.ts'
import { drive } from './load.ts'
import { unknownMentions } from './mentions.ts'
import { HOW_TO_INSTALL, isInstalled, Prometheus } from './prometheus.ts'
import { checkRules } from './promtool.ts'
import { command, startWorld } from './world.ts'

const LIMIT_MS = 85_000
const LOAD_MS = 14_000
const AFTER_MS = 4_000

/** Everything that is wrong with dashboards and rules when they meet a real gateway and a real Prometheus. */
async function live(folder: string, started: (prometheus: Prometheus) => void): Promise<string[]> {
  const world = await startWorld(folder)
  const prometheus = await Prometheus.start(new URL(world.control).host, folder)
  started(prometheus)
  const tasks = await drive(world, LOAD_MS)
  await command(world, '/admin/reload')
  await command(world, '/admin/chaos/disarm')
  await drive(world, AFTER_MS)
  const { asked, problems } = await ask(prometheus)
  console.log(`${tasks} tasks of agents; ${asked} queries and rules asked of a real Prometheus`)
  return problems
}

async function check(): Promise<string[]> {
  const problems = [...disagreements(), ...unknownMentions()]
  if (!isInstalled()) {
    console.log(`skipped: rules and queries against a real Prometheus, for there is none; ${HOW_TO_INSTALL}`)
    return problems
  }
  problems.push(...checkRules())
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-dashboards-'))
  let prometheus: Prometheus | undefined
  process.once('exit', () => prometheus?.kill())
  try {
    problems.push(...(await live(folder, (started) => (prometheus = started))))
  } finally {
    await prometheus?.stop()
    await cleanUp()
    await rm(folder, { recursive: true, force: true })
  }
  return problems
}

const overdue = setTimeout(() => {
  console.error(`not done after ${LIMIT_MS / 1000} s`)
  process.exit(1)
}, LIMIT_MS)
const problems = await check()
clearTimeout(overdue)
for (const problem of problems) console.error(problem)
console.log(problems.length === 0 ? 'dashboards, rules and metrics agree' : `${problems.length} problems`)
process.exitCode = problems.length === 0 ? 0 : 1
