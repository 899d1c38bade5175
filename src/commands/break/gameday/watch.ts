import { isGameDayOver } from '../../../gamedays/record.ts'
import type { Cancellation } from '../../../mesh/cancel.ts'
import { systemClock } from '../../../mesh/clock.ts'
import { printablePainted } from '../../../telemetry/printable.ts'
import { commandFor, type Command, type Given, paintOf } from '../../shared/control-command.ts'
import { endingInOrder } from '../../shared/signals.ts'
import { person, POLL_MS, SILENT_MS } from '../experiment/guarded.ts'
import { latestPath, pathOf } from './found.ts'
import { announcements, by, readUsable } from './plan.ts'
import { approveCommand, changeLines, isGood, resultLines, type ShownGameDay, viewLines } from './view.ts'

export const run: Command = {
  positionals: ['FILE'],
  options: { ...by, detach: { kind: 'flag', about: 'only begins it; the gateway continues it in any case' } },
  async run(given) {
    const { control, out, positionals, values } = given
    const { written, plan } = await readUsable(positionals[0] ?? '')
    const body = { plan: written, by: person(given) }
    const answered = await control({ method: 'POST', path: '/admin/gamedays', body })
    if (!answered.ok) {
      out.stderr(`breakwater: ${answered.message}`)
      return 1
    }
    const day = answered.value as ShownGameDay
    for (const line of [`GameDay ${day.id} has begun`, ...announcements(plan)])
      out.stderr(`breakwater: ${line}`)
    if (values.detach !== true) return follow(given, day)
    said(given, day)
    return 0
  },
}

export const status: Command = {
  positionals: ['[GAMEDAY]'],
  options: { follow: { kind: 'flag', about: 'shows the changes until it is over, as `run` does' } },
  async run(given) {
    const { control, out, values } = given
    const answered = await control({ method: 'GET', path: await latestPath(given, given.positionals[0]) })
    if (!answered.ok) {
      out.stderr(`breakwater: ${answered.message}`)
      return 1
    }
    const day = answered.value as ShownGameDay
    if (values.follow === true && !isGameDayOver(day)) return follow(given, day)
    said(given, day)
    return 0
  },
}

/** Shows a GameDay until it is over, and without a terminal also until it is paused. Resolves to the exit code. */
function follow(given: Given, begun: ShownGameDay): Promise<number> {
  return endingInOrder(
    async (stop) => {
      const { out } = given
      const ended = await lastOf(given, begun, stop).finally(() => out.status?.(undefined))
      if (ended === undefined) return 1
      said(given, ended)
      return isGood(ended) ? 0 : 1
    },
    () => process.exit(1),
  )
}

/** Shows each change, and resolves to the last state; to undefined once the user or a silent gateway ended the view. */
async function lastOf(
  given: Given,
  begun: ShownGameDay,
  stop: Cancellation,
): Promise<ShownGameDay | undefined> {
  const { control, out } = given
  let [day, heardAt] = [begun, systemClock.now()]
  show(given, day, undefined)
  while (!isAtEnd(given, day)) {
    await systemClock.sleep(POLL_MS, stop).catch(() => undefined)
    const answered = stop.aborted ? undefined : await control({ method: 'GET', path: pathOf(begun.id) })
    if (answered === undefined || stop.aborted) {
      out.status?.(undefined)
      for (const line of leavingLines(given, day)) out.stderr(line)
      return undefined
    }
    if (answered.ok) {
      const before = day
      ;[day, heardAt] = [answered.value as ShownGameDay, systemClock.now()]
      show(given, day, before)
    } else if (systemClock.now() - heardAt >= SILENT_MS) {
      out.status?.(undefined)
      out.stderr(`breakwater: ${answered.message}`)
      out.stderr(
        'breakwater: a GameDay whose gateway has ended is paused, and can be resumed after the next start',
      )
      return undefined
    }
  }
  return day
}

/** Without a terminal nobody may be there to resume a paused GameDay. */
const isAtEnd = ({ out }: Given, day: ShownGameDay): boolean =>
  isGameDayOver(day) || (day.state === 'paused' && out.status === undefined)

function show(given: Given, day: ShownGameDay, before: ShownGameDay | undefined): void {
  const { out } = given
  if (out.status !== undefined) {
    const size = { width: given.width - 2, height: (out.height ?? Infinity) - 1 }
    return out.status(viewLines(day, { given, now: systemClock.wall(), ...size }))
  }
  for (const line of changeLines(day, before)) out.stderr(`breakwater: ${line}`)
  const waits = (one?: ShownGameDay) => one?.steps.find(({ state }) => state === 'waits for approval')?.name
  const name = waits(day)
  if (name !== undefined && waits(before) !== name)
    out.stderr(
      `breakwater: ${commandFor(given, `breakwater ${approveCommand(name, day.run)}`)} lets ${name} begin`,
    )
}

/** Returns the lines for a person who leaves the view. */
function leavingLines(given: Given, { plan: { name } }: ShownGameDay): string[] {
  const line = (what: string, about: string) =>
    `  ${commandFor(given, `breakwater gameday ${what}`)}   ${about}`
  return [
    `breakwater: the GameDay ${name} goes on at the gateway`,
    line('status --follow', 'shows it again'),
    line('pause', 'clears its faults and waits'),
    line('stop', 'ends it'),
  ]
}

/** Prints a GameDay: its view and, once it is over, its result. */
export function said(given: Given, day: ShownGameDay): void {
  const { out, values, width } = given
  if (values.json === true) return out.stdout(JSON.stringify(day, undefined, 2))
  const options = { given, now: systemClock.wall(), width, height: Infinity, paint: paintOf(given) }
  const result = isGameDayOver(day) || day.actions.length > 0 ? resultLines(day) : []
  for (const line of [...viewLines(day, options), ...result]) out.stdout(printablePainted(line))
}
