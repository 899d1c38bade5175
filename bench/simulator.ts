import { parseArgs } from 'node:util'
import { agents } from '../src/sim/agents.ts'
import { SimulatedGateway } from '../src/sim/gateway.ts'
import { byDefault, none } from '../src/sim/policy-choices.ts'
import { independentErrors, sceneOf } from '../src/sim/scene.ts'
import { newTally, runTasks } from '../src/sim/tasks.ts'
import { VirtualClock } from '../src/sim/virtual-clock.ts'

/**
 * Measures the CPU of simulated calls, and whether memory stays flat: ten portions of calls, each measured separately.
 * `--calls N` in all (10,000,000), `--errors RATE` of the attempts (0), `--policies none` for the mesh without
 * policies.
 */
const { values } = parseArgs({
  options: {
    calls: { type: 'string', default: '10000000' },
    errors: { type: 'string', default: '0' },
    policies: { type: 'string', default: 'default' },
  },
})
const calls = Number(values.calls)
const errors = Number(values.errors)
const choice = values.policies === 'none' ? none : byDefault

const FAN_OUT = 8
const PORTIONS = 10
/** Tasks at a time: more tasks would queue at the bulkhead, as in a live gateway. */
const CONCURRENCY = 32

const clock = new VirtualClock()
const { servers, stepsOf } = sceneOf(FAN_OUT)
const gateway = new SimulatedGateway({
  clock,
  seed: 1,
  servers,
  policies: choice.policies,
  ...(errors > 0 && { plan: { seed: 1, faults: [independentErrors(errors)] } }),
})
const memory = () => {
  globalThis.gc?.()
  const { rss, heapUsed } = process.memoryUsage()
  return `${Math.round(heapUsed / 1e6)} MB in use, ${Math.round(rss / 1e6)} MB resident`
}

const tasks = Math.ceil(calls / FAN_OUT / PORTIONS)
const began = process.cpuUsage()
let made = 0
for (let portion = 0; portion < PORTIONS; portion++) {
  const tally = newTally()
  const before = process.cpuUsage()
  const workload = {
    tasks,
    stepsOf: (task: number) => stepsOf(portion * tasks + task),
    agent: agents.naive,
    concurrency: CONCURRENCY,
  }
  await clock.run(runTasks(gateway, clock, workload, tally))
  const { user, system } = process.cpuUsage(before)
  made += tally.calls
  const perCall = (user + system) / tally.calls
  console.log(
    `${made} calls, ${choice.name}: ${perCall.toFixed(2)} us of CPU a call, ${Math.round(1e6 / perCall)} a second of CPU, ` +
      `${memory()}; ${tally.good} of ${tally.calls} good, ${tally.attempts} attempts`,
  )
}
const { user, system } = process.cpuUsage(began)
console.log(
  `${made} calls in ${Math.round(clock.now() / 1000)} s of virtual time: ${Math.round((made * 1e6) / (user + system))} calls a second of CPU`,
)
