/* SPDX-License-Identifier: Apache-2.0 */
/* The answer in a sentence, and five figures. */

/* Decisions in words, of a plan file's object or of an answer's. */
function decisionWords(plan) {
  const d = plan.degrees || plan
  const recompute = plan.recompute === 'per stage' || plan.stage_recompute ? 'by stage' : plan.recompute + (plan.recompute_shard ? ', kept inputs split' : '')
  const homes = ['optimizer', 'gradients', 'params', 'activations']
    .map(c => [c, (plan.offload || plan)[c]]).filter(([, home]) => home && home.tier)
    .map(([c, home]) => `${c} on ${home.tier}`)
  return [`tensor ${d.tensor}`, `pipeline ${d.pipeline}`, d.context > 1 && `context ${d.context}`, `data ${d.data}`, d.expert > 1 && `expert ${d.expert}`, `zero ${plan.zero}`,
    `micro-batch ${plan.microbatch}`, plan.schedule + (plan.chunks > 1 ? ` with ${plan.chunks} chunks` : ''), `recompute ${recompute}`,
    plan.cut === 'block' && 'cuts inside layers', plan.sequence && 'norms split along the sequence', plan.compress && '1-bit exchange',
    plan.loss_chunks > 1 && `loss in ${plan.loss_chunks} chunks`, plan.rank_order === 'tpd' && 'rank order tpd',
    plan.idle > 0 && `${plan.idle} idle`, ...homes].filter(Boolean).join(' · ')
}

function tile(name, value, ...below) {
  return el('div', {class: 'tile'}, el('div', {class: 'name'}, name), el('div', {class: 'value'}, value), el('div', {class: 'below'}, below))
}

function peakTile() {
  const stage = number('plan.estimate.peak_stage')
  return tile('peak memory', figure('plan.estimate.peak_bytes', 'B'), 'of ', figure('usable_bytes.' + stage, 'B'), ' that may be used, on stage ',
    figure('plan.estimate.peak_stage', 'count'))
}

function timeTile() {
  const known = !isNaN(number('plan.estimate.step_s_low'))
  return tile('step time', figure('plan.estimate.step_s', 's'),
    known ? [figure('plan.estimate.step_s_low', 's'), ' to ', figure('plan.estimate.step_s_high', 's'), ' by ', figure('plan.estimate.range_runs', 'count'),
      ' measured runs'] : 'range unknown: no measured run is near')
}

function trainingTile() {
  if (!DATA.training) return tile('whole training', 'unknown', 'the file says no number of steps')
  const dollars = !isNaN(number('training.dollars'))
  return tile('whole training', figure('training.seconds', 's'), figure('training.steps', 'count'), ' steps, ', figure('training.device_hours', 'short'),
    ' device hours', dollars ? [', ', figure('training.dollars', '$')] : ', no price in the file')
}

function sentence() {
  return el('p', {class: 'answer'}, el('strong', {}, text('plan.model.name')), ' with ', figure('plan.model.parameters', 'count'), ' parameters fits on ',
    figure('plan.cluster.devices', 'count'), ' × ', el('strong', {}, text('plan.cluster.device')), ': a step of ', figure('plan.model.batch', 'count'), ' × ',
    figure('plan.model.sequence', 'count'), ' tokens takes ', figure('plan.estimate.step_s', 's'),
    DATA.training ? [', and ', figure('training.tokens', 'count'), ' tokens take ', figure('training.seconds', 's')] : '', '.')
}

function proofWords() {
  const c = at('plan.certificate')
  if (!c || !(c.candidates > 0)) return 'This plan was read from a file; no search has been run.'
  const searched = [figure('plan.certificate.candidates', 'count'), ' candidates were considered, ', figure('plan.certificate.priced', 'count'), ' of them priced. ']
  if (c.gap <= 0) return [searched, 'No other is faster in this cost model.']
  return [searched, 'No other is more than ', figure('plan.certificate.gap', 'share'), ' faster in this cost model (lower bound ',
    figure('plan.certificate.bound_s', 's'), ').']
}

const PROGRAMS = {zplan: "zplan's own trainer", megatron: 'Megatron-LM', deepspeed: 'DeepSpeed', fsdp: 'PyTorch FSDP'}

/* Sentences begin with a capital letter, on a page. */
const sentences = words => words.replace(/(^|\. )([a-z])/g, (_, before, letter) => before + letter.toUpperCase())

function drawAnswer() {
  const program = text('plan.for.program')
  return section('answer', text('plan.model.name') + ': training plan', sentence(),
    el('div', {class: 'tiles-row'}, timeTile(),
      tile('tokens a second', figure('plan.estimate.tokens_per_s', 'count'), 'all devices together'),
      tile('MFU', figure('plan.estimate.mfu', 'share'), figure('plan.estimate.hfu', 'share'), ' with recomputation'),
      peakTile(), trainingTile()),
    el('dl', {class: 'facts'},
      el('dt', {}, 'Layout'), el('dd', {}, text('words.choice')),
      el('dt', {}, 'Machine'), el('dd', {}, text('words.devices'), program && [', planned for ', PROGRAMS[program] || program,
        text('plan.for.profile') && ` (profile ${text('plan.for.profile')})`]),
      el('dt', {}, 'Why'), el('dd', {}, sentences(text('words.why'))),
      el('dt', {}, 'Proof'), el('dd', {}, proofWords()),
      DATA.plan.delayed_update && [el('dt', {}, 'Delayed update'), el('dd', {}, 'The update of a step runs on the host alongside the next one. It takes ',
        figure('plan.delayed_update.host_s', 's'), '; hidden ', figure('plan.delayed_update.hidden_s', 's'), ', shown ',
        figure('plan.delayed_update.shown_s', 's'), '. From step ', String(number('plan.delayed_update.after') + 2),
        ' on gradients are those of weights one update old.')]),
    el('p', {class: 'dim'}, '~ estimated by the cost model; figures without it are exact, and measured ones are called so.'))
}
