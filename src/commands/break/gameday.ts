import type { Env } from '../../config/files/interpolate.ts'
import { verdicts } from '../../evidence/verdict-names.ts'
import type { Tone } from '../../telemetry/colours.ts'
import { listed, Misuse, optionLines, optionsOf, type Output } from '../shared/arguments.ts'
import {
  ask,
  type Command,
  common,
  type Given,
  paintOf,
  runNamed,
  textOf,
} from '../shared/control-command.ts'
import { table } from '../shared/table.ts'
import { person } from './experiment/guarded.ts'
import { currentPath, type ListedGameDay, notedPath, ofOption } from './gameday/found.ts'
import { by, plan, validate } from './gameday/plan.ts'
import { report, reportOptions } from './gameday/report.ts'
import { type ShownGameDay, viewLines } from './gameday/view.ts'
import { run, status } from './gameday/watch.ts'
import { systemClock } from '../../mesh/clock.ts'

const stateTones: Readonly<Record<ListedGameDay['state'], Tone>> = {
  running: 'doubtful',
  paused: 'doubtful',
  stopped: 'bad',
  over: 'good',
}

const list: Command = {
  run: (given) =>
    ask(
      given,
      { method: 'GET', path: '/admin/gamedays' },
      ({ gameDays }: { readonly gameDays: readonly ListedGameDay[] }) => {
        if (gameDays.length === 0)
          return ['there has been no GameDay; breakwater gameday run FILE begins one']
        const head = ['NAME', 'ID', 'STATE', 'BY', 'BEGUN', 'VERDICTS', 'OPEN ACTIONS']
        return table(head, gameDays.map(rowOf), given.width, paintOf(given))
      },
    ),
}

const rowOf = ({ name, id, state, by: who, startedAt, result }: ListedGameDay) => [
  name,
  id,
  { text: state, tone: stateTones[state] },
  who,
  startedAt.replace(/T(\d\d:\d\d).*/, ' $1Z'),
  verdicts
    .filter((verdict) => result.verdicts[verdict] > 0)
    .map((verdict) => `${result.verdicts[verdict]} ${verdict}`)
    .join(', '),
  result.openActions,
]

const why = { why: { kind: 'text', value: 'TEXT', about: 'the reason, for the record' } } as const

/** A command that steers the GameDay under way. */
const steering = (order: 'pause' | 'resume' | 'skip' | 'stop'): Command => ({
  positionals: ['[GAMEDAY]'],
  options: { ...by, ...why },
  async run(given) {
    const reason = textOf(given.values, 'why')
    const body = { by: person(given), ...(reason !== undefined && { why: reason }) }
    const path = `${await currentPath(given)}/${order}`
    return ask(given, { method: 'POST', path, body }, shownIn(given))
  },
})

const shownIn = (given: Given) => (day: ShownGameDay) =>
  viewLines(day, {
    given,
    now: systemClock.wall(),
    width: given.width,
    height: Infinity,
    paint: paintOf(given),
  })

const note: Command = {
  positionals: ['TEXT'],
  options: { ...by, ...ofOption },
  async run(given) {
    const body = { by: person(given), text: given.positionals[0] }
    const path = `${await notedPath(given)}/observations`
    return ask(given, { method: 'POST', path, body }, ({ plan: { name }, observations }: ShownGameDay) => {
      const step = observations.at(-1)?.step
      return [`${name}: noted${step === undefined ? '' : ` during ${step}`}`]
    })
  },
}

const action: Command = {
  positionals: ['TEXT'],
  options: {
    ...by,
    ...ofOption,
    owner: { kind: 'text', value: 'NAME', about: 'the person or team that does it; required' },
    due: { kind: 'text', value: 'DATE', about: 'a date such as 2026-12-24' },
  },
  async run(given) {
    const [owner, due] = [textOf(given.values, 'owner'), textOf(given.values, 'due')]
    if (owner === undefined) throw new Misuse('--owner is missing: the person or team that does it')
    if (due !== undefined && !/^\d{4}-\d\d-\d\d$/.test(due))
      throw new Misuse(`--due must be a date such as 2026-12-24, not "${due}"`)
    const body = { by: person(given), what: given.positionals[0], owner, ...(due !== undefined && { due }) }
    const path = `${await notedPath(given)}/actions`
    return ask(given, { method: 'POST', path, body }, ({ plan: { name }, actions }: ShownGameDay) => [
      `${name}: action ${actions.length}, for ${owner}${due === undefined ? '' : `, due ${due}`}`,
    ])
  },
}

const done: Command = {
  positionals: ['NUMBER'],
  options: { ...by, ...ofOption },
  async run(given) {
    const [number = ''] = given.positionals
    if (!/^[1-9]\d{0,3}$/.test(number))
      throw new Misuse(`NUMBER must be the number of an action, not "${number}"`)
    const path = `${await notedPath(given)}/actions/${number}/done`
    const body = { by: person(given) }
    return ask(given, { method: 'POST', path, body }, ({ plan: { name }, result }: ShownGameDay) => [
      `${name}: action ${number} is done; open: ${result.openActions}`,
    ])
  },
}

const commands: Readonly<Record<string, Command>> = {
  validate,
  plan,
  run,
  status,
  list,
  pause: steering('pause'),
  resume: steering('resume'),
  skip: steering('skip'),
  stop: steering('stop'),
  note,
  action,
  done,
}

const usage = `breakwater gameday: guarded experiments one after the other, as one exercise of a running gateway

  breakwater gameday validate FILE      checks a file; needs no gateway
  breakwater gameday plan FILE          shows experiments, targets, approvals and refusals; injects nothing
  breakwater gameday run FILE           begins the GameDay, and shows its progress until it is over
  breakwater gameday status [GAMEDAY]   shows the current or last GameDay
  breakwater gameday list               shows all GameDays

While it runs:
  breakwater gameday pause [GAMEDAY]    clears its faults and stops its timers
  breakwater gameday resume [GAMEDAY]   continues; an interrupted experiment begins anew
  breakwater gameday skip [GAMEDAY]     leaves out the experiment that is under way or next
  breakwater gameday stop [GAMEDAY]     clears its faults, and ends it

For its record, also afterwards:
  breakwater gameday note TEXT          keeps an observation
  breakwater gameday action TEXT        keeps an action: something to be done
  breakwater gameday done NUMBER        closes an action
  breakwater gameday report [GAMEDAY]   prints the report, with gaps and actions; needs no gateway

GAMEDAY is an id, or a name for its latest GameDay; only one is under way at a time.

${optionLines([...listed(common), ...optionsOf({ ...commands, report: { options: reportOptions } })])}

  Exit codes: 0; 1 on failure or refusal; 2 for wrong arguments. \`run\` and \`status --follow\` exit with 0 once the
  GameDay is over and each experiment has passed or held (weak), and with 1 otherwise: after a failed experiment, one
  without evidence or a skipped one, after Ctrl-C and, without a terminal, after a pause.`

/** `breakwater gameday …`: resolves to the exit code; 2 for wrong arguments. */
export const gameday = (args: readonly string[], out: Output, env: Env): Promise<number> =>
  args[0] === 'report'
    ? report(args.slice(1), out, env)
    : runNamed(args, { usage, commands, others: ['report'] }, out, env)
