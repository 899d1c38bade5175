import type { Env } from '../../../config/files/interpolate.ts'
import { systemClock } from '../../../mesh/clock.ts'
import { optionLines, type Output, runCommand, UnusableInput } from '../../shared/arguments.ts'
import { endingInOrder } from '../../shared/signals.ts'
import { configNames, findConfig } from '../../run/find-config.ts'
import { controlMcpAt, controlMcpUrl } from '../control-client.ts'
import { checkEvidence, type Proposed, readChange, withEvidence } from './change.ts'
import { readCycle } from './file.ts'
import { playSteps } from './steps.ts'
import { cycleMarkdown } from './text.ts'

const options = {
  url: controlMcpUrl,
  config: {
    kind: 'text',
    value: 'FILE',
    about: `the config that the script's diff changes (default: the first of ${configNames.join(', ')})`,
  },
  wait: {
    kind: 'duration',
    value: 'DURATION',
    default: '10m',
    about: "how long to wait for a person's approval",
  },
  json: { kind: 'flag', about: 'the result as JSON' },
} as const

const usage = `breakwater replay-cycle FILE [--config FILE]

  Plays a whole cycle from a script, without a model: hypothesis, plan, run, analysis, and a proposed change of policies.
  The script has the decisions of a model. The change is a diff, with its replay and its comparison; a person applies
  the diff. BREAKWATER_MCP_TOKEN holds the agent's token.

${optionLines(options)}

  Exit codes: 0 when the cycle was played to its end, also when the gate ended the run; 1 when it could not be played,
  or when gathering the replay or the comparison failed; 2 for wrong arguments.`

/** `breakwater replay-cycle`: prints the cycle as a report. */
export function replayCycle(args: readonly string[], out: Output, env: Env): Promise<number> {
  const line = { usage, options, positionals: ['FILE'] }
  return runCommand(args, line, out, ({ url, config, wait, json }, [file = '']) =>
    endingInOrder(async (stop, closing) => {
      const cycle = await readCycle(file)
      const { change: wanted } = cycle
      // A diff that does not fit, and files that cannot be used, are found before anything is proposed.
      const both = wanted && (await readChange(await configFor(config), wanted, env))
      if (both !== undefined) await checkEvidence(both, wanted!, env)
      const client = await controlMcpAt(url, env)
      closing.push(() => client.close())
      const steps = await playSteps(cycle, { client, clock: systemClock, stop, out, patienceMs: wait })
      const change = both && (await withEvidence(both, wanted, { closing, stop, out, env }))
      const played = { cycle, steps, change }
      out.stdout(json ? JSON.stringify(played, undefined, 2) : cycleMarkdown(played))
      const failures = change === undefined ? [] : failuresIn(change)
      for (const line of failures) out.stderr(`breakwater: ${line}`)
      return failures.length === 0 ? 0 : 1
    }),
  )
}

const failuresIn = ({ replay, comparison }: Proposed): string[] =>
  Object.entries({ replay, comparison }).flatMap(([of, evidence]) =>
    'missing' in evidence && evidence.isFailure === true ? [`no ${of}: ${evidence.missing}`] : [],
  )

async function configFor(given: string | undefined): Promise<string> {
  const found = given ?? (await findConfig(process.cwd()))
  if (found === undefined)
    throw new UnusableInput(
      `there is no config for the change: expected --config FILE, or one in this folder (${configNames.join(', ')})`,
    )
  return found
}
