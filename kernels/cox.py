"""The partial likelihood of proportional hazards, whose rows depend on all rows still at risk (Cox 1972), ties after Breslow.

    loss = Σ over events i of w_i·(ln S(t_i) − margin_i),    S(t) = Σ w_j·e^margin_j over rows j with t_j >= t

Weights count rows, in S as well; XGBoost leaves them out of S. One thread adds in the order of time, on the host, so that float64
sums are the same for any device and any number of threads and workers.

g_j = e^margin_j·r_j − [event],  h_j = e^margin_j·(r_j − w_j·e^margin_j·s_j),  r_j = Σ w_i/S(t_i), s_j = Σ w_i/S(t_i)² over events
with t_i <= t_j
"""

from numba import float32

from gpuboost.kernels.gradients import cut, not_negative
from gpuboost.kernels.jit import kernel
from gpuboost.kernels.scalar import exp_double, log_double

LARGEST = 1e30  # of a derivative, far below what is no float32 any more


@kernel
def hazards(order, margin, largest, hazard):
    """hazard : float64 (n_rows,), OUT, by time: e^(margin − largest), the difference in float32.

    order : intp (n_rows,), rows by rising |label|. margin : float32 (n_rows,), by row."""
    for place in range(order.size):  # apart from the next loop, which is vectorised
        hazard[place] = float32(margin[order[place]] - float32(largest))
    for place in range(order.size):
        hazard[place] = exp_double(hazard[place])


@kernel
def sum_at_risk(label, weight, hazard, at_risk):
    """at_risk : float64 (n_rows,), OUT, S at the time of each row. All arrays are by time: rows at random places cost three times
    as much.

    label : float32 (n_rows,), times, those without an event negative. weight : float32 (n_rows,). hazard : float64 (n_rows,).
    """
    total, last = 0.0, label.size - 1
    for place in range(label.size - 1, -1, -1):
        total += float(weight[place]) * hazard[place]
        if place == 0 or abs(label[place - 1]) != abs(label[place]):
            at_risk[place : last + 1] = total
            last = place - 1


@kernel
def cox_gradients(order, label, weight, hazard, at_risk, grad, hess):
    """grad, hess : float32 (n_rows,), OUT, by row: times the weight. order as of hazards; the others by time, as above."""
    first, r, s = 0, 0.0, 0.0
    for place in range(order.size):
        if label[place] > 0 and weight[place] > 0:
            r = min(r + float(weight[place]) / at_risk[place], 1e300)
            s += float(weight[place]) / at_risk[place] / at_risk[place]
        if place == order.size - 1 or abs(label[place + 1]) != abs(label[place]):
            for tied in range(first, place + 1):
                own, row = hazard[tied], order[tied]
                g = min(own * r, LARGEST) - (1.0 if label[tied] > 0 else 0.0)
                h = own * (r - float(weight[tied]) * own * s)
                h = h if h < LARGEST else 0.0  # of margins so far apart that s is infinite
                grad[row] = float32(cut(float32(g)) * weight[tied])
                hess[row] = float32(cut(not_negative(float32(h))) * weight[tied])
            first = place + 1


@kernel
def cox_loss(label, weight, hazard, at_risk):
    """The loss divided by the weight of the events; NaN without events. Arrays by time."""
    loss, events = 0.0, 0.0
    for place in range(label.size):
        if label[place] > 0 and weight[place] > 0:
            loss += float(weight[place]) * (log_double(at_risk[place]) - log_double(hazard[place]))
            events += float(weight[place])
    return loss / events
