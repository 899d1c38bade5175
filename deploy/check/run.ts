import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { cleanUp } from '../../test/e2e/support/gateway.ts'
import { closeServers } from '../../test/e2e/support/raw-server.ts'
import { disagreements } from './agreement.ts'
import { live } from './live.ts'
import { unknownMentions } from './mentions.ts'
import { HOW_TO_INSTALL, isInstalled, type Prometheus } from './prometheus.ts'
import { checkRules } from './promtool.ts'
import { playAndCompare } from './scripted.ts'

const LIMIT_MS = 600_000

async function check(): Promise<string[]> {
  const problems = [...disagreements(), ...unknownMentions()]
  if (!isInstalled()) {
    console.log(`skipped: rules and queries against a real Prometheus: none is installed; ${HOW_TO_INSTALL}`)
    return problems
  }
  problems.push(...(await checkRules()))
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-dashboards-'))
  const running: Prometheus[] = []
  const started = (prometheus: Prometheus) => void running.push(prometheus)
  try {
    // A Prometheus each: some rules are about all servers of all gateways.
    const found = await Promise.all([
      live(join(folder, 'live'), started),
      playAndCompare(join(folder, 'scripted'), started),
    ])
    problems.push(...found.flat())
  } finally {
    await Promise.all(running.map((prometheus) => prometheus.stop()))
    await cleanUp()
    closeServers()
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
