import { gameDayResult, type GameDayRecord, type GameDayState } from '../gamedays/record.ts'
import type { Announcement } from '../registry/health/notices.ts'
import { numbered } from '../units/numbered.ts'

const marks: Readonly<Record<GameDayState, string>> = {
  running: ':construction:',
  paused: ':double_vertical_bar:',
  stopped: ':octagonal_sign:',
  over: ':checkered_flag:',
}

/** Returns the news of a GameDay's state, for the webhook of the GameDay. */
export function newsOf(record: GameDayRecord, at: number): Announcement {
  const { id, plan, state, reason, by, environment, pauses, steps } = record
  const what = state === 'running' ? (pauses.length === 0 ? 'begun' : 'resumed') : state
  const result = gameDayResult(record)
  return {
    id: `${id}:${what}:${pauses.length}`,
    event: `gameday.${what}`,
    mark: marks[state],
    words: `GameDay ${plan.name}, "${plan.title}" (${environment}), ${wordsOf(record, what)}`,
    source: `breakwater ${environment}`,
    at,
    environment,
    facts: {
      gameDay: {
        id,
        name: plan.name,
        title: plan.title,
        state,
        reason,
        by,
        lead: plan.roles.lead,
        during: plan.communication.during,
        servers: plan.scope.servers,
        experiments: steps.map(({ name, state, result }) => ({ name, state, verdict: result?.verdict })),
        result,
      },
    },
  }
}

function wordsOf(record: GameDayRecord, what: string): string {
  const { plan, reason, by, steps } = record
  const servers = plan.scope.servers.join(', ')
  const lead = `lead: ${plan.roles.lead}`
  switch (what) {
    case 'begun':
      return `has begun, by ${by}: ${numbered(steps.length, 'experiment')} with faults at ${servers}; alerts about these servers are expected; ${lead}`
    case 'resumed':
      return `goes on: faults at ${servers} are expected again; ${lead}`
    case 'paused':
      return `is paused, without faults: ${reason}; ${lead}`
    default:
      return `has ended, and its faults are cleared: ${reason}; ${countsOf(record)}`
  }
}

function countsOf(record: GameDayRecord): string {
  const { verdicts, notRun } = gameDayResult(record)
  const counts = Object.entries({ ...verdicts, 'not run': notRun }).filter(([, count]) => count > 0)
  return counts.map(([what, count]) => `${count} ${what}`).join(', ')
}
